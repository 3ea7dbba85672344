"""Output of the commands: plain lines, and a rich console for tables; how their process exits."""

import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from rich.console import Console
from rich.segment import Segment
from rich.table import Table

from lce_core.terminal import WIDTH, Guarded, visible


@dataclass
class ProcessEnd:
    """States how a command's process must exit; the entry point of `lce` reads it at the end."""

    skips_handlers: bool = False
    """Exit without atexit handlers, because Prefect's server or Ray's head died. Without its
    server, Prefect's handler retries each pending record for minutes. Without its head, Ray's
    handler has crashed with a segmentation fault."""


def plain_table(texts: Sequence[str], numbers: Sequence[str] = ()) -> Table:
    """Return a rich table without rows and without ruled lines.

    Texts that are too wide continue on the next line; the numbers to their right never wrap.
    """
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in texts:
        table.add_column(column, overflow="fold")
    for column in numbers:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def titled_grids(
    labels: Sequence[str], blocks: Iterable[tuple[str, Sequence[Sequence[str]]]], width: int
) -> Iterator[list[str]]:
    """Yield grids of at most `width` characters, as lines: blocks of columns beside labels.

    `labels` are the head of the labels and the label of each row. A block has a title and columns,
    and a column a head and a text for each row; all labels, and all texts of a column, have one
    length. A block that is too wide for a grid is divided.
    """
    labels, room = ["".ljust(len(labels[0])), *labels], width - len(labels[0])
    parts = []
    for title, columns in blocks:
        for some in _packed(columns, room):
            lines = [title, *("".join(row) for row in zip(*some, strict=True))]
            widest = max(map(len, lines))
            parts.append([line.ljust(widest) for line in lines])
    for group in _packed(parts, room):
        yield ["".join(row).rstrip() for row in zip(labels, *group, strict=True)]


def _packed(columns: Iterable[Sequence[str]], room: int) -> list[list[Sequence[str]]]:
    groups: list[list[Sequence[str]]] = []
    for column in columns:
        if groups and sum(len(one[0]) for one in (*groups[-1], column)) <= room:
            groups[-1].append(column)
        else:
            groups.append([column])
    return groups


class Terminal(Console):
    """A rich console without markup that makes control characters visible."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, **options})

    @property
    def file(self) -> IO[str]:
        """The stream to which rich writes, without the guard that escapes control sequences."""
        # `super` returns the real stream, which a live view replaces in `sys.stdout`.
        found = super().file
        # `_render_buffer` has already escaped all texts, so a guard would only block rich's own
        # control sequences.
        return found.unguarded if isinstance(found, Guarded) else found

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        return super()._render_buffer(
            one if one.control else Segment(visible(one.text), one.style) for one in buffer
        )


def wrapped(line: str) -> list[str]:
    """Wrap a sentence at spaces only, so that a command in it can be copied."""
    return textwrap.wrap(
        line, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def say(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Print a text and flush. Unlike `click.echo`, keep ANSI codes in files and pipes."""
    stream = sys.stderr if err else sys.stdout
    stream.write(f"{text}{end}")
    stream.flush()
