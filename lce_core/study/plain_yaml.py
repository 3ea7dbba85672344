"""Load YAML files that users write (study files, execution files) with strict rules and limits.

The loader rejects duplicate keys and keys that are not strings, because they hide mistakes. It
rejects aliases, because a few lines of aliases can expand to billions of values. It limits size and
nesting, far above any real study file, so that Python neither hangs nor raises RecursionError.

Numbers mean what people who do not know YAML 1.1 mean: 1e9 is the integer 1,000,000,000 and 1e-4 a
number, both of which YAML 1.1 reads as text; 010, which is 8 in YAML 1.1, and 1:30, which is 90,
are rejected.
"""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from lce_core.errors import SpecError

MAX_CHARS = 1 << 19
"""Maximum file size: about 10,000 lines, for which PyYAML's Python loader takes five seconds."""
MAX_VALUES = 20_000
MAX_DEPTH = 32
MAX_DIGITS = 40
"""Maximum characters of an integer; 64-bit ones need at most 20 digits."""
_SHOWN_CHARS = 60
_EXPONENT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9_]*)(?:\.[0-9_]*)?)[eE][-+]?[0-9]+$")
_OCTAL = re.compile(r"([-+]?)0[0_]*([0-9][0-9_]*)")


def beginning_of(path: Path) -> str:
    """Return the start of a file, one character more than `plain_yaml` accepts."""
    with path.open(encoding="utf-8") as file:
        return file.read(MAX_CHARS + 1)


def plain_yaml(text: str, where: str) -> Any:
    """Parse one YAML document, named `where` in errors, into plain values."""
    if len(text) > MAX_CHARS:
        raise SpecError(
            where,
            f"more than {MAX_CHARS:,} characters",
            f"a text of at most {MAX_CHARS:,} characters",
            "check that this is the file you meant, or shorten it",
        )
    try:
        loader = _StrictLoader(text, where)
        return loader.get_single_data()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{where}:{mark.line + 1}" if mark else where
        problem = getattr(error, "problem", None) or str(error).replace("\n", " ")
        raise SpecError(
            place, problem, "plain YAML with distinct keys and no aliases", "correct this line"
        ) from None


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that rejects aliases and duplicate keys and limits sizes."""

    def __init__(self, text: str, where: str) -> None:
        self._where, self._depth, self._num_values = where, 0, 0
        super().__init__(text)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise _refused(f"alias *{event.anchor} is used", event.start_mark)
        self._num_values += 1
        if self._num_values > MAX_VALUES:
            raise self._beyond(f"more than {MAX_VALUES:,} keys and values", f"{MAX_VALUES:,}")
        if self._depth == MAX_DEPTH:
            raise self._beyond(f"more than {MAX_DEPTH} levels of nesting", f"{MAX_DEPTH} levels")
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        kind = node.tag.rpartition(":")[2]
        if kind == "int" and len(node.value) > MAX_DIGITS:
            digits = f"an integer of {len(node.value):,} characters"
            raise self._beyond(digits, f"{MAX_DIGITS} digits", node.start_mark)
        try:
            value = super().construct_object(node, deep)
        except SpecError:
            raise
        except (ValueError, KeyError, AttributeError):
            # PyYAML raises these for scalars such as 2020-99-99 or `!!int x`.
            shown = str(node.value)[:_SHOWN_CHARS]
            raise _refused(f"{shown!r}, which is not a valid {kind}", node.start_mark) from None
        if kind in ("int", "float") and isinstance(node, yaml.ScalarNode):
            return self._number(value, node)
        return value

    def _number(self, value: float, node: yaml.ScalarNode) -> float:
        text = node.value
        if octal := _OCTAL.fullmatch(text):
            decimal = f"{octal[1]}{octal[2]}"
            raise self._unclear(node, value, f"{decimal}, or {value} if you meant an octal number")
        if ":" in text:
            raise self._unclear(node, value, f"{value}, or '{text[:_SHOWN_CHARS]}' if it is text")
        # The limit keeps 1e30 a float, whose digits nobody wrote.
        if _EXPONENT.fullmatch(text) and 1 <= abs(value) < 2**63 and value.is_integer():
            exact = Decimal(text.replace("_", ""))
            return int(exact) if exact == int(exact) else value
        return value

    def _unclear(self, node: yaml.ScalarNode, value: float, write: str) -> SpecError:
        return SpecError(
            f"{self._where}:{node.start_mark.line + 1}",
            f"{node.value[:_SHOWN_CHARS]}, which YAML reads as {value}",
            "a decimal number without leading zeros",
            f"write {write}",
        )

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise _refused(f"key {key!r} is not text", key_node.start_mark)
            if key in seen:
                raise _refused(f"key {key!r} is given twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)

    def _beyond(self, got: str, limit: str, mark: Any = None) -> SpecError:
        mark = mark or self.peek_event().start_mark  # type: ignore[no-untyped-call]
        return SpecError(
            f"{self._where}:{mark.line + 1}",
            got,
            f"at most {limit}",
            "write the value shorter, or check that this is the file you meant",
        )


def _refused(problem: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


_StrictLoader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+.0123456789"))
