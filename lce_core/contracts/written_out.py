"""Check that a plug-in's reference values are literals, not computed by its own formula.

A value that the file computes agrees with the code under test by construction. The check parses the
source, because the number alone does not show how it was computed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

PLACES = {"frequencies": 0, "value": 1, "calls": 1}
"""Functions that make reference values, and the index of the argument with the expected value."""
STATED = (["EVIDENCE"], ["evidence"])
"""Targets of assignments of reference values: EVIDENCE in a file, `evidence` in a class body."""
COUNTED = re.compile(r"\bcount(s|ed)?\b")


def faults(file: Path) -> Iterator[str]:
    """Yield an error message for each value of EVIDENCE that the file computes.

    Also yield one for an EVIDENCE without values, and for each counted value that is no integer.
    """
    for statement in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(statement, ast.Assign) and _names(statement.targets) in STATED:
            found = list(_expected(statement.value, {}))
            if not found:
                yield f"EVIDENCE has no reference value: call one of {', '.join(PLACES)}"
            for value, origin in found:
                yield from _of_value(value, origin)


def _of_value(value: ast.expr, origin: str) -> Iterator[str]:
    text = ast.unparse(value)
    if not _is_figure(value):
        yield f"{text} is computed; write the number itself"
    elif COUNTED.search(origin) and not _is_whole(value):
        yield f"{text} is not a whole number, although its origin says that it was counted"


def _expected(node: ast.AST, bound: dict[str, list[ast.expr]]) -> Iterator[tuple[ast.expr, str]]:
    """Yield the expected values below `node` with their origins.

    A variable of a comprehension is replaced by each of its values, which `bound` contains.
    """
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        for each in node.generators:
            bound = bound | _bindings(each)
        yield from _expected(node.elt, bound)
    elif isinstance(node, ast.Call) and _name(node.func) in PLACES:
        place = PLACES[_name(node.func)]
        given = [word.value for word in node.keywords if word.arg == "origin"]
        origins = _resolved((given or node.args[place + 1 : place + 2])[0], bound)
        words = " ".join(ast.unparse(origin) for origin in origins)
        for value in _resolved(node.args[place], bound):
            yield value, words
    else:
        yield from chain.from_iterable(
            _expected(child, bound) for child in ast.iter_child_nodes(node)
        )


def _bindings(loop: ast.comprehension) -> dict[str, list[ast.expr]]:
    names = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
    rows = loop.iter.elts if isinstance(loop.iter, ast.Tuple | ast.List) else []
    found: dict[str, list[ast.expr]] = {}
    for place, name in enumerate(_names(names)):
        for row in rows:
            alone = not isinstance(loop.target, ast.Tuple)
            found.setdefault(name, []).append(
                row if alone or not isinstance(row, ast.Tuple) else row.elts[place]
            )
    return found


def _resolved(node: ast.expr, bound: dict[str, list[ast.expr]]) -> list[ast.expr]:
    return bound.get(node.id, [node]) if isinstance(node, ast.Name) else [node]


def _is_figure(node: ast.expr) -> bool:
    """Return True for a constant, a fraction of whole numbers, or a collection of these."""
    match node:
        case ast.Constant():
            return True
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
            return True
        case ast.BinOp(
            op=ast.Div(), left=ast.Constant(value=int()), right=ast.Constant(value=int())
        ):
            return True
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(map(_is_figure, parts))
        case ast.Dict(keys=keys, values=values):
            return all(key is not None and _is_figure(key) for key in keys) and all(
                map(_is_figure, values)
            )
    return False


def _is_whole(node: ast.expr) -> bool:
    """Return True if no part of the value is a float literal; 3 / 8 counts as whole numbers."""
    parts = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
    return not any(
        isinstance(part, ast.Constant) and isinstance(part.value, float) for part in parts
    )


def _names(nodes: list[ast.expr]) -> list[str]:
    return [_name(node) for node in nodes]


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""
