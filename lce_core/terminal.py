r"""Foreign text on terminals: what could steer one is shown as an escape such as \x1b.

Hypotheses, labels, prompts, answers of models and names of files may hold sequences that rename a
window, write to the clipboard, hide or reorder text. Streams that are no terminal get every text
unchanged.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable
from typing import Any, TextIO

_STEERING = re.compile(
    # C0 but tab and newline, DEL and C1; what reorders text or is invisible; separators of lines;
    # surrogates, which no encoding takes.
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f"
    "\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb\\U000e0000-\\U000e007f"
    "\\ud800-\\udfff]"
)
_COLOUR = re.compile("(\\x1b\\[[0-9;]*m)")

_BAR = re.compile("\\r|(?:\\x1b\\[A)+")
"""What tqdm begins a write with: to the start of the line, or up by some lines."""


def visible(text: str) -> str:
    r"""Return the text with every character that steers a terminal as an escape (\x1b, \u202e).

    Tabs, newlines and the joiners of emoji and of Indic and Arabic scripts stay.
    """
    return _STEERING.sub(lambda found: _escape(found[0]), text)


def guard_terminal(*, coloured: bool = False) -> None:
    """Make standard output and error show foreign text harmlessly where they are terminals.

    Whatever a process prints, warnings and tracebacks included, passes `visible`. Rich writes past
    the guard, as it sends sequences of its own; `flows.terminal` makes its texts visible.

    Args:
      coloured: Let colours pass, for libraries that send them.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None or isinstance(stream, Guarded):
            continue
        if stream.isatty():
            # tqdm's bars go to standard error, where no text of ours begins with a foreign one.
            setattr(sys, name, Guarded(stream, coloured=coloured, bars=name == "stderr"))
        elif isinstance(stream, io.TextIOWrapper) and name == "stdout":
            stream.reconfigure(errors="surrogateescape")  # names of files, byte by byte


class Guarded:
    """A stream to a terminal whose text passes `visible`."""

    def __init__(self, stream: TextIO, *, coloured: bool = False, bars: bool = False) -> None:
        self.unguarded, self._bars = stream, bars
        self._passing = _COLOUR if coloured else None
        if not coloured:
            # Rich writes to the stream of this name instead: typer's help has colours.
            self.rich_proxied_file = Guarded(stream, coloured=True)

    def write(self, text: str) -> int:
        """Write text, as `TextIO.write`."""
        start = _BAR.match(text) if self._bars else None
        head = start[0] if start else ""
        # Every second part is what the pattern found.
        parts = self._passing.split(text[len(head) :]) if self._passing else [text[len(head) :]]
        shown = (part if number % 2 else visible(part) for number, part in enumerate(parts))
        self.unguarded.write(head + "".join(shown))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each text."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
