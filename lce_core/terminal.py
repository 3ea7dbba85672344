r"""Escape terminal control characters in untrusted text, such as \x1b.

Hypotheses, labels, prompts, model answers and file names can contain sequences that rename a
window, write to the clipboard, or hide or reorder text. Other streams get text unchanged.
"""

import io
import re
import sys
from collections.abc import Iterable
from typing import Any, TextIO

WIDTH = 80
"""Assumed terminal width in columns."""
_STEERING = re.compile(
    # C0 except tab and newline, DEL, C1; invisible characters and those that reorder text; line
    # and paragraph separators; surrogates, which cannot be encoded.
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f"
    "\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb\\U000e0000-\\U000e007f"
    "\\ud800-\\udfff]"
)
_COLOUR = re.compile("(\\x1b\\[[0-9;]*m)")

_BAR = re.compile("\\r|(?:\\x1b\\[A)+")
"""Cursor movement with which tqdm starts a write: carriage return or "line up"."""


def visible(text: str) -> str:
    r"""Return the text with every terminal control character escaped (\x1b, \u202e).

    Tabs, newlines and the zero-width joiners of emoji and of Indic and Arabic scripts are kept.
    """
    return _STEERING.sub(lambda found: _escape(found[0]), text)


def guard_terminal(*, coloured: bool = False) -> None:
    """Make standard output and standard error escape control characters if they are terminals.

    Rich bypasses this guard; `flows.terminal` escapes its texts. `coloured` lets colours pass.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or isinstance(stream, Guarded):
            continue
        if stream.isatty():
            # tqdm's bars go to standard error. Untrusted text never starts a write there, so its
            # leading cursor movement can pass.
            setattr(sys, name, Guarded(stream, coloured=coloured, bars=name == "stderr"))
        elif isinstance(stream, io.TextIOWrapper) and name == "stdout":
            stream.reconfigure(errors="surrogateescape")  # file names keep their exact bytes


class Guarded:
    """A terminal stream that escapes control characters in everything written to it.

    All other attributes come from the wrapped stream, except its binary `buffer`.
    """

    buffer = None
    """No bytes to write to: click would write raw text there if the encoding is ASCII."""

    def __init__(self, stream: TextIO, *, coloured: bool = False, bars: bool = False) -> None:
        self.unguarded, self._bars = stream, bars
        self._passing = _COLOUR if coloured else None
        if not coloured:
            # Rich looks up this attribute and writes to it: typer's help has colours.
            self.rich_proxied_file = Guarded(stream, coloured=True)

    def write(self, text: str) -> int:
        start = _BAR.match(text) if self._bars else None
        head = start[0] if start else ""
        # re.split with a group: every second part is a matched colour sequence.
        parts = self._passing.split(text[len(head) :]) if self._passing else [text[len(head) :]]
        shown = (part if number % 2 else visible(part) for number, part in enumerate(parts))
        self.unguarded.write(head + "".join(shown))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
