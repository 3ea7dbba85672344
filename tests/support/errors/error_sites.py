"""Every place that makes an error of ours, read from the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from lce_core import errors
from tests.support.repository import ROOT

PACKAGES = ("lce_core", "catalog", "tasks", "flows", "dashboards", "lce")
PARTS = ("where", "got", "expected", "remedy")
ERRORS = "lce_core/errors.py"
_HOLE = re.compile(r"\{(?:[^{}]|\{[^{}]*\})*\}")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Site:
    """A call that makes an error."""

    file: str
    """Path below the checkout."""
    function: str
    line: int
    end: int
    kind: str
    """Name of the class."""
    where: str
    got: str
    expected: str
    remedy: str
    """The four parts, {expression} where something is filled in."""

    @property
    def name(self) -> str:
        """Readable and, without line numbers, the same until the message changes."""
        return f"{self.file}:{self.function}: got {self.got}; expected {self.expected}"

    def matches(self, error: errors.LceError) -> bool:
        """Whether an error says what this place says."""
        said = ((self.got, error.got), (self.expected, error.expected))
        return all(_pattern(template).fullmatch(text) for template, text in said)


def kinds() -> list[str]:
    """Names of all classes of the family, in the order in which they are defined."""
    found = vars(errors).values()
    return [one.__name__ for one in found if isinstance(one, type) and _of_family(one)]


@cache
def sites() -> tuple[Site, ...]:
    """All places in the five packages, by file and line."""
    found: list[Site] = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            file = path.relative_to(ROOT).as_posix()
            if file != ERRORS:
                tree = ast.parse(path.read_text(encoding="utf-8"))
                found += sorted(_sites_of(file, tree), key=lambda site: site.line)
    return tuple(found)


def foreign_raises() -> list[str]:
    """Raises of built-in errors, as "file: class", which need a reason to be there."""
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                    name = ast.unparse(node.exc.func)
                    ours = name in kinds() or name == "NotImplementedError"  # of abstract bases
                    if name.rpartition(".")[2][:1].isupper() and not ours:
                        found.append(f"{path.relative_to(ROOT).as_posix()}: {name}")
    return found


def _of_family(kind: type) -> bool:
    return issubclass(kind, errors.LceError) and kind is not errors.LceError


def _sites_of(file: str, tree: ast.Module) -> Iterator[Site]:
    functions = [(name, node) for name, node in _functions(tree.body, "")]
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and (kind := ast.unparse(call.func)) in kinds():
            around = [one for one in functions if _is_in(call, one[1])]
            name, _ = max(around, key=lambda one: one[1].lineno)
            parts = _parts(call, kind, [tree, *(node for _, node in around)])
            end = call.end_lineno or call.lineno
            yield Site(file, name, call.lineno, end, kind, *parts)


def _functions(body: Sequence[ast.stmt], prefix: str) -> Iterator[tuple[str, Function]]:
    for node in body:
        if isinstance(node, Function):
            yield prefix + node.name, node
        if isinstance(node, Function | ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}.")


def _is_in(call: ast.Call, function: Function) -> bool:
    return function.lineno <= call.lineno <= (function.end_lineno or function.lineno)


def _parts(call: ast.Call, kind: str, scopes: Sequence[ast.AST]) -> list[str]:
    if own := _own_parts(kind):
        return own
    return [_text(part, scopes) for part in call.args[: len(PARTS)]]


@cache
def _own_parts(kind: str) -> list[str]:
    """The parts of a class that builds them itself; empty for all others."""
    tree = ast.parse((ROOT / ERRORS).read_text(encoding="utf-8"))
    (node,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == kind)
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "super().__init__":
            return [_text(part, [node]) for part in call.args[: len(PARTS)]]
    return []


def _text(node: ast.AST, scopes: Sequence[ast.AST]) -> str:
    """A part as a template."""
    match node:
        case ast.Constant(value=value):
            return str(value)
        case ast.JoinedStr(values=values):
            return "".join(_text(value, scopes) for value in values)
        case ast.FormattedValue(value=value):
            return "{" + ast.unparse(value) + "}"
        case ast.IfExp(body=body, orelse=orelse):
            return f"{_text(body, scopes)} OR {_text(orelse, scopes)}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left, scopes) + _text(right, scopes)
        case ast.Call(func=ast.Name(id="did_you_mean"), args=[_, known]):
            return "write one of {" + ast.unparse(known) + "}"
        case ast.Name(id=name) if value := _assigned(name, scopes):
            return _text(value, scopes)
    return "{" + ast.unparse(node) + "}"


def _assigned(name: str, scopes: Sequence[ast.AST]) -> ast.AST | None:
    """The text that a name stands for, if it is written down in one place."""
    texts = (ast.Constant, ast.JoinedStr)
    values = [
        node.value
        for scope in scopes
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign)
        and [ast.unparse(target) for target in node.targets] == [name]
    ]
    return (
        values[0]
        if len({ast.dump(v) for v in values}) == 1 and isinstance(values[0], texts)
        else None
    )


def _pattern(template: str) -> re.Pattern[str]:
    either = [_HOLE.split(text) for text in template.split(" OR ")]
    parts = [".*".join(map(re.escape, pieces)) for pieces in either]
    return re.compile("|".join(parts), re.DOTALL)
