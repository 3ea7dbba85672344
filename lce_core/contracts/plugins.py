"""Checks that every plug-in must pass: source, description, evidence, identity.

Reference values must be literals: a value that the plug-in's file computes agrees with the code
under test by construction. So each must stand in the source of EVIDENCE (`_stated`).
"""

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from lce_core.evidence import Evidence
from lce_core.registry import Plugin, Registry

PAPER = re.compile(r"arXiv:\d{4}\.\d{4,5}|doi:10\.\d{4,9}/\S+|https://\S+|own")
REFERENCE = re.compile(r"[\w.-]+\.[a-z]+/[\w./-]+@[0-9a-f]{40}|https://\S+|own")
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
    stated = _stated(Path(str(module.__file__)))
    for evidence in plugin.evidence:
        for value in _scalars(evidence.expected):
            size = abs(value) if isinstance(value, int | float) else value
            assert value is None or size in stated, (
                f"EVIDENCE: {value!r} is computed; write the number itself"
            )
            is_measure = isinstance(value, float) and not stated[size]
            assert not (is_measure and _COUNTED.search(evidence.origin)), (
                f"EVIDENCE: {value!r} is not a whole number, although its origin says that it was"
                " counted"
            )
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


def _scalars(expected: Any) -> Iterator[Any]:
    if isinstance(expected, Mapping):
        expected = [*expected.keys(), *expected.values()]
    if isinstance(expected, list | tuple):
        for each in expected:
            yield from _scalars(each)
    else:
        yield expected


def _stated(file: Path) -> dict[object, bool]:
    """Return what a file states in its EVIDENCE; True for a fraction of whole numbers."""
    found: dict[object, bool] = {}
    for statement in ast.walk(ast.parse(file.read_bytes())):
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id="EVIDENCE" | "evidence")], value=value)
                | ast.AnnAssign(target=ast.Name(id="EVIDENCE"), value=ast.expr() as value)
                | ast.AugAssign(target=ast.Name(id="EVIDENCE"), value=value)
            ):
                for node in ast.walk(value):
                    match node:
                        case ast.Constant(value=constant):
                            found[constant] = False
                        case ast.BinOp(
                            left=ast.Constant(value=int(above)),
                            op=ast.Div(),
                            right=ast.Constant(value=int(below)),
                        ):
                            found[above / below] = True
    return found
