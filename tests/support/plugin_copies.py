"""Plug-ins of tests: none outlives its test; copies under other names, changed in one place."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from lce_core.registry import Registry, own_folders

_NUMBERS = count(1)

Change = tuple[str, str]
"""A piece of the source that occurs once, and what stands in its place."""


@contextmanager
def plugins_removed_after() -> Iterator[None]:
    """Remove the plug-in folders that the body adds, and forget all modules imported from them.

    Otherwise later tests in this process would list, load and import these plug-ins, too.
    """
    before = own_folders()
    try:
        yield
    finally:
        for package, folders in own_folders().items():
            search = importlib.import_module(package).__path__
            for folder in set(folders) - set(before.get(package, ())):
                search.remove(str(folder))
                installed = (folder.parent / "__init__.py").exists()
                root = folder.parent if installed else folder  # its helper modules, too
                for name, module in list(sys.modules.items()):
                    if Path(getattr(module, "__file__", None) or "").is_relative_to(root):
                        del sys.modules[name]
                        vars(sys.modules[package]).pop(name.rpartition(".")[2], None)
        importlib.invalidate_caches()


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
    with plugins_removed_after():
        registry.add_folder(folder)
        importlib.invalidate_caches()
        yield registry.load(copy)
