"""YAML of people: names and numbers, within bounds that no honest file comes near.

The loader refuses what a study has no use for and what hides mistakes: keys given twice, keys that
are no text, aliases (a few lines of which stand for billions of values), and sizes at which Python
would hang or end in a RecursionError.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from lce_core.errors import SpecError

MAX_CHARS = 1 << 19
"""About 10,000 lines. The loader is Python and reads 100,000 characters a second."""
MAX_VALUES = 20_000
MAX_DEPTH = 32
MAX_DIGITS = 40
"""Of an integer; 2^64 has 20."""
_SHOWN_CHARS = 60


def beginning_of(path: Path) -> str:
    """Return a file's text; of one that `plain_yaml` refuses, as much as it needs for that.

    Raises:
      OSError, UnicodeDecodeError: as `Path.read_text`.
    """
    with path.open(encoding="utf-8") as file:
        return file.read(MAX_CHARS + 1)


def plain_yaml(text: str, where: str) -> Any:
    """Return the content of a YAML text.

    Args:
      text: One document.
      where: The file or option, for errors.

    Raises:
      SpecError: names the line.
    """
    if len(text) > MAX_CHARS:
        raise SpecError(
            where,
            f"more than {MAX_CHARS:,} characters",
            f"a text of at most {MAX_CHARS:,} characters",
            "check that it is the right file, or split it",
        )
    try:
        loader = _StrictLoader(text, where)
        return loader.get_single_data()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{where}:{mark.line + 1}" if mark else where
        problem = getattr(error, "problem", None) or str(error).replace("\n", " ")
        raise SpecError(
            place, problem, "plain YAML with distinct keys and no aliases", "edit the line"
        ) from None


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader with bounds that knows whom it reads for."""

    def __init__(self, text: str, where: str) -> None:
        self._where, self._depth, self._num_values = where, 0, 0
        super().__init__(text)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(
                None, None, f"alias *{event.anchor} is used", event.start_mark
            )
        self._num_values += 1
        if self._num_values > MAX_VALUES:
            raise self._beyond(f"more than {MAX_VALUES:,} names and values", f"{MAX_VALUES:,}")
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
            return super().construct_object(node, deep)
        except SpecError:
            raise
        except (ValueError, KeyError, AttributeError):
            # What PyYAML raises for 2020-99-99 or `!!int x`.
            shown = str(node.value)[:_SHOWN_CHARS]
            raise yaml.constructor.ConstructorError(
                None, None, f"{shown!r}, which is no {kind}", node.start_mark
            ) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is not text", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)

    def _beyond(self, got: str, limit: str, mark: Any = None) -> SpecError:
        mark = mark or self.peek_event().start_mark  # type: ignore[no-untyped-call]
        return SpecError(
            f"{self._where}:{mark.line + 1}",
            got,
            f"at most {limit}",
            "write it shorter, or split the file",
        )
