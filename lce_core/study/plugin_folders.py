"""Register plug-ins of `--plugins` folders and installed packages; find a step's plug-ins."""

from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lce_core.benchmarks import BENCHMARKS
from lce_core.corpora import CORPORA
from lce_core.errors import SpecError
from lce_core.methods import METHODS
from lce_core.models import MODELS
from lce_core.registry import Registry
from lce_core.store.records import PluginCode

PLACES: dict[str, Registry[Any]] = {
    "methods": METHODS,
    "benchmarks": BENCHMARKS,
    "models": MODELS,
    "corpora": CORPORA,
}
"""Registry by subfolder of `--plugins`."""
ENTRY_POINTS = "lce.plugins"
"""Entry point group; each value names a package with these subfolders."""


def add_plugin_folders(folders: tuple[Path, ...]) -> None:
    """Register the plug-ins of installed packages and of `folders`, which have distinct names."""
    for folder, package in [*_installed(), *((folder, None) for folder in folders)]:
        for place, registry in PLACES.items():
            registry.add_folder(folder / place, package)


def _installed() -> Iterator[tuple[Path, str]]:
    for entry in entry_points(group=ENTRY_POINTS):
        # Every installed entry point belongs to a distribution.
        name = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.name
        # Finding a package with a dotted name would import its parent.
        spec = None if "." in entry.value else find_spec(entry.value)
        if spec is None or spec.submodule_search_locations is None:
            raise SpecError(
                f"installed package {name}",
                f"the entry point {entry.name} = {entry.value!r} in the group {ENTRY_POINTS}",
                f"the name of a top-level package with folders such as {', '.join(PLACES)}",
                f"correct the entry point and install {name} again, or uninstall it",
            )
        yield from ((Path(folder), name) for folder in spec.submodule_search_locations)


_KIND_OF = {
    "method": "methods",
    "benchmark": "benchmarks",
    "base_model": "models",
    "tokenizer": "models",
    "corpus": "corpora",
}
"""Subfolder by the spec's field with the plug-in's identity."""


def own_plugins(spec: Mapping[str, Any]) -> dict[str, PluginCode]:
    """Return the user's plug-ins in a spec, by names such as "methods/mine"."""
    found = {}
    for field, kind in _KIND_OF.items():
        # Not every step kind has every field, and optional fields can be None.
        if isinstance(entry := spec.get(field), Mapping):
            name = entry["name"]
            if code := PLACES[kind].code(name):
                found[f"{kind}/{name}"] = code
    return found
