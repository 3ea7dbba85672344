"""Folders with plug-ins of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lce_core.benchmarks import BENCHMARKS
from lce_core.corpora import CORPORA
from lce_core.methods import METHODS
from lce_core.models import MODELS
from lce_core.registry import Registry

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
