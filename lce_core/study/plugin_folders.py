"""Folders with plug-ins of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lce_core.benchmarks import BENCHMARKS
from lce_core.corpora import CORPORA
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
"""Folders within such a folder, and what lies in each."""


def add_plugin_folders(folders: tuple[Path, ...]) -> None:
    """Lets plug-ins in `<folder>/methods`, `/benchmarks`, `/models` and `/corpora` take part."""
    for folder in folders:
        for place, registry in PLACES.items():
            registry.add_folder(folder / place)


_KIND_OF = {
    "method": "methods",
    "benchmark": "benchmarks",
    "base_model": "models",
    "tokenizer": "models",
    "corpus": "corpora",
}
"""Kind of the plug-in that each field of a step's spec names."""


def own_plugins(spec: Mapping[str, Any]) -> dict[str, PluginCode]:
    """Return the user's own plug-ins that a step's spec names, by kind and name.

    Raises:
      SpecError: a plug-in is not here, or its file is wrong.
    """
    found = {}
    for field, kind in _KIND_OF.items():
        # Some fields are left out, or None, in some kinds of step.
        if isinstance(entry := spec.get(field), Mapping):
            name = entry["name"]
            if code := PLACES[kind].code(name):
                found[f"{kind}/{name}"] = code
    return found
