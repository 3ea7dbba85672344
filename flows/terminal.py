"""Output of the commands: plain lines, and tables and progress by rich."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any

from rich.console import Console
from rich.segment import Segment
from rich.table import Table

from lce_core.terminal import Guarded, visible


def plain_table(texts: Sequence[str], numbers: Sequence[str] = (), gap: int = 2) -> Table:
    """Return a table without lines: columns of text, then columns of numbers aligned right.

    Text that is too wide continues in the next line; numbers never break.
    """
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, gap, 0, 0))
    for column in texts:
        table.add_column(column, overflow="fold")
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    return table


class Terminal(Console):
    """A console that prints texts without markup and passes only rich's own escape sequences."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, **options})

    @property
    def file(self) -> IO[str]:
        """The stream that rich writes to."""
        found = super().file  # skips the replacement that a live view puts in place of a stream
        # `_render_buffer` escapes each segment's text, so the guard could only block rich's own
        # sequences.
        return found.unguarded if isinstance(found, Guarded) else found

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        return super()._render_buffer(
            one if one.control else Segment(visible(one.text), one.style) for one in buffer
        )


def say(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Print a text and flush. Unlike `click.echo`, keep escape sequences in files and pipes."""
    stream = sys.stderr if err else sys.stdout
    stream.write(f"{text}{end}")
    stream.flush()
