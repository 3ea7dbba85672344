"""Escape untrusted text for Markdown, so that it cannot become a link, image, HTML or table."""

from __future__ import annotations

import re

from lce_core.terminal import visible

_ESCAPED = re.compile(
    r"[\\`*~$|]"  # code, emphasis, strike-through, GitHub's mathematics, table columns
    r"|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"  # emphasis; never within a name
)
_BRACKET = re.compile(r"(\[[-+.,e\d ]*\d(?: to )?[-+.,e\d ]*\](?![(\[:]))|[][]")
"""Matches an interval such as [0.1, 0.2] or [0.1 to 0.2] as group 1, or else a single bracket.

Only single brackets are escaped. An interval needs no escape: the pattern excludes intervals that
could start a link.
"""
_ENTITIES = (
    (re.compile(r"&(?=#?\w+;)"), "&amp;"),
    (re.compile(r"<(?=[A-Za-z/!?])"), "&lt;"),
    # GitHub turns these into links automatically.
    (re.compile("://"), ":&#47;&#47;"),
    (re.compile(r"(?i)\bwww\."), "www&#46;"),
    (re.compile("@"), "&#64;"),
)
_BLOCK = re.compile(r"^([#>+=-]|:(?=-))|^(\d+)([.)])")


def plain(text: str) -> str:
    """Return one line of Markdown that shows the text literally.

    The line can be used in a list item, a paragraph or a table. Line breaks become spaces. Control
    characters, and characters that change the direction of text, become visible escapes.
    """
    line = visible(" ".join(text.split()))
    # At the start of a line, a number begins an ordered list, a dash a list, a # a heading.
    found = _BLOCK.match(line)
    start = "" if not found else f"\\{found[1]}" if found[1] else f"{found[2]}\\{found[3]}"
    line = _ESCAPED.sub(r"\\\g<0>", line[found.end() :] if found else line)
    line = _BRACKET.sub(lambda one: one[0] if one[1] else f"\\{one[0]}", line)
    for pattern, entity in _ENTITIES:
        line = pattern.sub(entity, line)
    return start + line


def file_name(*parts: object) -> str:
    """Join the parts to a file name that is safe in a folder, in Markdown and in a URL."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", "-".join(map(str, parts)))
