"""Checks that every plug-in must pass: source, description, evidence, identity.

Reference values must be literals: a value that the plug-in's file computes agrees with the code
under test by construction. The number alone does not show how it was computed, so `_faults` parses
the source.
"""

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from lce_core.evidence import Evidence
from lce_core.registry import Plugin, Registry

PAPER = re.compile(r"arXiv:\d{4}\.\d{4,5}|doi:10\.\d{4,9}/\S+|https://\S+|own")
REFERENCE = re.compile(r"[\w.-]+\.[a-z]+/[\w./-]+@[0-9a-f]{40}|https://\S+|own")
_PLACES = {"frequencies": 0, "value": 1, "calls": 1}
"""Functions that make reference values, and the index of the argument with the expected value."""
_COUNTED = re.compile(r"\bcount(s|ed)?\b")


def built(plugin: type[Plugin], parameters: Mapping[str, Any]) -> Any:
    """Return the plug-in with these parameters, validated as in a study file."""
    return plugin.model_validate_json(json.dumps(dict(parameters)))


def check_source(plugin: type[Plugin]) -> None:
    """Check that SOURCE names a paper, a section of it and the code to compare with."""
    source = plugin.source
    assert PAPER.fullmatch(source.paper), (
        f"SOURCE.paper {source.paper!r}: neither an arXiv id, a DOI, a page nor 'own'"
    )
    assert source.place, "SOURCE.place is empty"
    for reference in source.reference.split("; "):
        assert REFERENCE.fullmatch(reference), (
            f"SOURCE.reference {reference!r}: neither a repository at a commit of 40 hexadecimal"
            " digits, nor a page, nor 'own'"
        )


def check_description(plugin: type[Plugin]) -> None:
    """Check that the file, its VERSION and every parameter are described."""
    assert plugin.summary.endswith("."), f"the docstring's first line {plugin.summary!r}: no period"
    assert len(plugin.summary) > 20, f"the docstring's first line {plugin.summary!r}: too short"
    version = plugin.plugin_version
    assert type(version) is int, f"VERSION is {version!r}; expected an integer"
    assert version >= 1, f"VERSION is {version}; expected at least 1"
    silent = [name for name, field in plugin.model_fields.items() if not field.description]
    assert not silent, f"parameters without a docstring: {silent}"


def check_evidence(registry: Registry[Any], plugin: type[Plugin]) -> None:
    """Check that every reference value is a literal that the plug-in's own code reproduces."""
    assert plugin.evidence, "EVIDENCE is empty"
    own = f"{registry.package}.{plugin.plugin_name}"
    # The class may be in another module than EVIDENCE. Plug-ins of a table have no module.
    module = sys.modules[own if own in sys.modules else plugin.__module__]
    hollow = [*_faults(Path(str(module.__file__)))]
    assert not hollow, f"EVIDENCE: {'; '.join(hollow)}"
    ran_own_code = [_recomputed(plugin, evidence) for evidence in plugin.evidence]
    assert any(ran_own_code) or getattr(plugin, "family", "") == "none", (
        "EVIDENCE: no value is computed by the plug-in's own code"
    )


def check_identity(
    registry: Registry[Any], plugin: type[Plugin], example: Mapping[str, Any]
) -> None:
    """Check that a plug-in can be rebuilt from its identity, which omits exactly the defaults."""
    made = built(plugin, example)
    identity = made.identity()
    assert registry.from_identity(identity) == made
    assert identity["name"] == plugin.plugin_name
    assert identity["version"] == plugin.plugin_version
    fields = plugin.model_fields.items()
    kept = {key for key, field in fields if getattr(made, key) != field.get_default()}
    assert set(identity) == {"name", "version", *kept}


def _recomputed(plugin: type[Plugin], evidence: Evidence) -> bool:
    """Check one reference value; return True if the plug-in's own code computed it."""
    assert evidence.origin, f"{evidence}: no origin"
    answer, files = _traced(evidence.prepare(plugin))
    assert _agree(answer, evidence.expected, evidence.tolerance), (
        f"EVIDENCE: got {answer!r}; expected {evidence.expected!r} ({evidence.origin})"
    )
    own = bool(files & own_files(plugin))
    assert own or not callable(evidence.of), (
        f"EVIDENCE: {evidence.of.__qualname__}() runs no code of the plug-in"
    )
    return own


def own_files(plugin: type[Plugin]) -> set[str]:
    """Return the source files of the plug-in's own class and base classes.

    If one is in an `__init__.py` or in a folder whose name starts with "_", all files below that
    folder count. Files of the public base classes, such as `Method`, do not count.
    """
    room = sys.modules[".".join(plugin.__module__.split(".")[:2])]
    public = {Plugin, *(one for one in vars(room).values() if isinstance(one, type))}
    public_modules = {base.__module__ for base in plugin.__mro__ if base in public}
    found: set[str] = set()
    for base in plugin.__mro__:
        file = getattr(sys.modules.get(base.__module__), "__file__", None)
        if not issubclass(base, Plugin) or file is None or base.__module__ in public_modules:
            continue
        path = Path(file)
        folder = path.parent
        family = path.name == "__init__.py" or folder.name.startswith("_")
        found |= {str(one) for one in folder.rglob("*.py")} if family else {file}
    return found


def _traced(call: Callable[[], Any]) -> tuple[Any, set[str]]:
    files: set[str] = set()

    def seen(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            files.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        answer = call()
    finally:
        sys.setprofile(before)
    return answer, files


def _agree(answer: Any, expected: Any, tolerance: float) -> bool:
    try:
        found, wanted = np.asarray(answer, dtype=float), np.asarray(expected, dtype=float)
    except (TypeError, ValueError):
        return bool(answer == expected)
    # None converts to NaN, so both results must lack a value in the same places.
    return found.shape == wanted.shape and np.allclose(
        found, wanted, rtol=tolerance, atol=0, equal_nan=True
    )


def _faults(file: Path) -> Iterator[str]:
    """Yield an error message for each value of EVIDENCE that the file computes."""
    stated = [*filter(None, map(_stated, ast.walk(ast.parse(file.read_bytes()))))]
    found = [list(_expected(values, {})) for values in stated]
    if not all(found) or not found:
        yield f"{file.name} states no reference value: call one of {', '.join(_PLACES)} there"
    for value, origin in chain.from_iterable(found):
        if not _is_figure(value):
            yield f"{ast.unparse(value)} is computed; write the number itself"
        elif _COUNTED.search(origin) and any(map(_is_float, [value, *getattr(value, "elts", ())])):
            yield (
                f"{ast.unparse(value)} is not a whole number, although its origin says that it was"
                " counted"
            )


def _stated(statement: ast.AST) -> ast.expr | None:
    """Return what a statement assigns to EVIDENCE of a file or `evidence` of a class; or None."""
    match statement:
        case (
            ast.Assign(targets=[ast.Name(id="EVIDENCE" | "evidence")], value=value)
            | ast.AnnAssign(target=ast.Name(id="EVIDENCE"), value=value)
            | ast.AugAssign(target=ast.Name(id="EVIDENCE"), value=value)
        ):
            return value
    return None


def _expected(node: ast.AST, bound: dict[str, list[ast.expr]]) -> Iterator[tuple[ast.expr, str]]:
    """Yield the expected values below `node` with their origins.

    A variable of a comprehension is replaced by each of its values, which `bound` contains.
    """
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        for each in node.generators:
            bound = bound | _bindings(each)
        yield from _expected(node.elt, bound)
    elif isinstance(node, ast.Call) and _name(node.func) in _PLACES:
        place = _PLACES[_name(node.func)]
        origins = _resolved(_argument(node, "origin", place + 1), bound)
        words = " ".join(ast.unparse(origin) for origin in origins)
        for value in _resolved(_argument(node, "expected", place), bound):
            yield value, words
    else:
        yield from chain.from_iterable(
            _expected(child, bound) for child in ast.iter_child_nodes(node)
        )


def _argument(call: ast.Call, name: str, place: int) -> ast.expr:
    """Return an argument of the call; the call itself if `*` or `**` hides the argument."""
    named = [word.value for word in call.keywords if word.arg == name]
    return [*named, *call.args[place : place + 1], call][0]


def _bindings(loop: ast.comprehension) -> dict[str, list[ast.expr]]:
    target, rows = loop.target, getattr(loop.iter, "elts", [])
    if not rows:
        return {}
    if not isinstance(target, ast.Tuple):
        return {_name(target): rows}
    return {
        _name(name): [row.elts[place] if isinstance(row, ast.Tuple) else row for row in rows]
        for place, name in enumerate(target.elts)
    }


def _resolved(node: ast.expr, bound: dict[str, list[ast.expr]]) -> list[ast.expr]:
    return bound.get(node.id, [node]) if isinstance(node, ast.Name) else [node]


def _is_figure(node: ast.expr) -> bool:
    """Return True for a constant, a fraction of whole numbers, or a collection of these."""
    match node:
        case ast.BinOp(
            op=ast.Div(), left=ast.Constant(value=int()), right=ast.Constant(value=int())
        ):
            return True
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(map(_is_figure, parts))
        case ast.Dict(keys=keys, values=values):
            return all(key is not None and _is_figure(key) for key in [*keys, *values])
        case ast.Constant() | ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
            return True
    return False


def _is_float(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, float)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""
