"""`lce check`: check a user's plug-ins against the contract, with one line per check."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.terminal import say
from lce_core.benchmarks import DataSet
from lce_core.errors import SpecError
from lce_core.registry import Registry, plugin_names
from lce_core.study.plugin_folders import PLACES, add_plugin_folders


@dataclass(frozen=True)
class PluginFile:
    """A user's plug-in, found at FOLDER/PLACE/NAME.py or in a package of that name."""

    folder: Path
    place: str
    """One of methods, benchmarks, models, corpora."""
    name: str

    @property
    def registry(self) -> Registry[Any]:
        return PLACES[self.place]


def check_plugins(path: Path, data_folders: Mapping[str, Path]) -> bool:
    """Print the result of each check of the plug-ins at `path`; return True if all pass.

    Args:
      path: a plug-in's file or folder, or a folder that contains methods/, benchmarks/, ...
      data_folders: folders of the data sets that benchmarks read, by name.

    Raises:
      SpecError: if there is no plug-in, or its name is taken.
    """
    require_assertions(sys.flags.optimize)
    found = plugin_files(path.absolute())
    add_plugin_folders(tuple({one.folder for one in found}))
    kept = [_kept(one, data_folders) for one in found]
    return all(kept)


def plugin_files(path: Path) -> list[PluginFile]:
    """Return the plug-ins at an absolute path: the one it names, or all in its subfolders.

    Raises:
      SpecError: if there is none.
    """
    path = path.parent if path.name == "__init__.py" else path
    if path.parent.name in PLACES and path.stem in plugin_names([str(path.parent)]):
        return [PluginFile(path.parents[1], path.parent.name, path.stem)]
    found = [
        PluginFile(path, place, name)
        for place in PLACES
        for name in plugin_names([str(path / place)])
    ]
    if not found:
        raise SpecError(
            f"{path}",
            "no plug-in",
            f"a plug-in's file, or a folder with some in {', '.join(PLACES)}",
            "check the path, or write one with `lce new`",
        )
    return found


def require_assertions(optimize: int) -> None:
    """Raise SpecError if Python skips assertions, which the checks are made of."""
    if optimize:
        raise SpecError(
            "lce check",
            "a Python that leaves out assertions",
            "one that runs them",
            "leave out -O, and unset PYTHONOPTIMIZE",
        )


def _kept(one: PluginFile, data_folders: Mapping[str, Path]) -> bool:
    # Import torch only after the path was checked.
    from lce_core.contracts.findings import findings

    def data(data_sets: Iterable[DataSet]) -> dict[str, Path]:
        names = {each.name for each in data_sets}
        return {name: folder for name, folder in data_folders.items() if name in names}

    say(f"{one.place}/{one.name}")
    faults = 0
    for finding in findings(one.registry, one.name, data):
        say(f"{'FAIL' if finding.fault else 'ok  '} {finding.check}: {finding.about}")
        if finding.fault:
            say(f"     {finding.fault}")
            faults += 1
    return not faults
