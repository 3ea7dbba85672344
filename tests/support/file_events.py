"""What this process does with files, as the interpreter's own audit events tell it."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_WATCHES: list[tuple[tuple[str, ...], str, list[str]]] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    for events, below, seen in _WATCHES:
        if event in events and isinstance(arguments[0], str | bytes | os.PathLike):
            path = str(Path(os.fsdecode(arguments[0])).absolute())
            if path.startswith(below):
                seen.append(path)


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[list[str]]:
    """Paths below `folder` of the files that are opened within, one for each time."""
    yield from _watch(("open",), folder)


@contextlib.contextmanager
def listed(folder: Path) -> Iterator[list[str]]:
    yield from _watch(("os.listdir", "os.scandir"), folder)


def _watch(events: tuple[str, ...], folder: Path) -> Iterator[list[str]]:
    if not _WATCHES and not getattr(sys, "_lce_file_events", False):
        sys.addaudithook(_hook)  # for good, but it looks only while somebody watches
        sys._lce_file_events = True  # type: ignore[attr-defined]
    seen: list[str] = []
    _WATCHES.append((events, str(folder.absolute()), seen))
    try:
        yield seen
    finally:
        _WATCHES.remove((events, str(folder.absolute()), seen))
