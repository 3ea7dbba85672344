"""Copies of plug-ins under other names, changed in one place, in a folder that takes part."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from lce_core.registry import Registry

_NUMBERS = count(1)

Change = tuple[str, str]
"""A piece of the source that occurs once, and what stands in its place."""


@contextmanager
def copied(registry: Registry[Any], name: str, folder: Path, *changes: Change) -> Iterator[Any]:
    """The plug-in `name`, copied to `folder` with changes, as a class that the registry loaded.

    Raises:
      AssertionError: a piece to be changed does not occur just once.
    """
    module = importlib.import_module(f"{registry.package}.{name}")
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    for old, new in changes:
        assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times in {name}"
        source = source.replace(old, new)
    copy = f"{name}_copy{next(_NUMBERS)}"  # caches know plug-ins by their names
    (folder / f"{copy}.py").write_text(source, encoding="utf-8")
    registry.add_folder(folder)
    importlib.invalidate_caches()
    search = importlib.import_module(registry.package).__path__
    try:
        yield registry.load(copy)
    finally:
        search.remove(str(folder))
        sys.modules.pop(f"{registry.package}.{copy}", None)
        importlib.invalidate_caches()
