"""What commands print: plain lines, and tables and progress by rich."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import IO, Any

from rich.console import Console
from rich.segment import Segment

from lce_core.terminal import Guarded, visible


class Terminal(Console):
    """A console whose texts are plain: no markup, and no sequence but those of rich itself."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, **options})

    @property
    def file(self) -> IO[str]:
        """The stream that rich writes to."""
        found = super().file  # not what a live view puts in a stream's place, which prints here
        # Segments are made visible one by one, so the guard would only stop rich's own sequences.
        return found.unguarded if isinstance(found, Guarded) else found

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        return super()._render_buffer(
            one if one.control else Segment(visible(one.text), one.style) for one in buffer
        )


def say(text: str, *, err: bool = False, end: str = "\n") -> None:
    """Print a text, unchanged where the stream is no terminal; click would remove sequences."""
    stream = sys.stderr if err else sys.stdout
    stream.write(f"{text}{end}")
    stream.flush()
