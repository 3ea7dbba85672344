"""Register the folders of users' own plug-ins (`--plugins`), and find a step's plug-ins."""

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
"""Registry of each type of plug-in, by the subfolder of `--plugins` that contains such plug-ins."""


def add_plugin_folders(folders: tuple[Path, ...]) -> None:
    """Register the plug-ins in the subfolders methods, benchmarks, models and corpora."""
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
"""Subfolder of a plug-in, by the field of a step's spec that contains the plug-in's identity."""


def own_plugins(spec: Mapping[str, Any]) -> dict[str, PluginCode]:
    """Return VERSION and code digest of the user's plug-ins in a step's spec.

    The keys are names such as "methods/mine". Plug-ins of lce are not in the result.

    Raises:
      SpecError: if a plug-in is not registered or its file is invalid.
    """
    found = {}
    for field, kind in _KIND_OF.items():
        # Not every step kind has every field, and optional fields can be None.
        if isinstance(entry := spec.get(field), Mapping):
            name = entry["name"]
            if code := PLACES[kind].code(name):
                found[f"{kind}/{name}"] = code
    return found
