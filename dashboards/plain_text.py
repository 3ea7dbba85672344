"""Foreign text in Markdown: shown as it was written, never as a link, an image, HTML or a table."""

from __future__ import annotations

import re

from lce_core.terminal import visible

_ESCAPED = re.compile(
    r"[\\`*~$|]"  # code, emphasis, strike-through, GitHub's mathematics, fields of tables
    r"|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"  # emphasis; never within a name
)
_BRACKET = re.compile(r"(\[[-+.,e\d ]*\d[-+.,e\d ]*\](?![(\[:]))|[][]")
"""Those of an interval, which begins no link, and any other."""
_ENTITIES = (
    (re.compile(r"&(?=#?\w+;)"), "&amp;"),
    (re.compile(r"<(?=[A-Za-z/!?])"), "&lt;"),
    # What GitHub makes links of by itself.
    (re.compile("://"), ":&#47;&#47;"),
    (re.compile(r"(?i)\bwww\."), "www&#46;"),
    (re.compile("@"), "&#64;"),
)
_BLOCK = re.compile(r"^([#>+=-]|:(?=-))|^(\d+)([.)])")


def plain(text: str) -> str:
    """Return one line of Markdown that shows the text.

    It may stand at the beginning of a list item or paragraph, and in a table. Line breaks become
    spaces; control characters and such as reorder text are shown as escapes.
    """
    line = visible(" ".join(text.split()))
    # A number at the start would begin an ordered list, a dash a list, a # a heading.
    found = _BLOCK.match(line)
    start = "" if not found else f"\\{found[1]}" if found[1] else f"{found[2]}\\{found[3]}"
    line = _ESCAPED.sub(r"\\\g<0>", line[found.end() :] if found else line)
    line = _BRACKET.sub(lambda one: one[0] if one[1] else f"\\{one[0]}", line)
    for pattern, entity in _ENTITIES:
        line = pattern.sub(entity, line)
    return start + line


def file_name(*parts: object) -> str:
    """Return a name of a file that is safe in a folder, in Markdown and in an address."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", "-".join(map(str, parts)))
