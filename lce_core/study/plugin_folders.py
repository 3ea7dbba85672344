"""Folders with plug-ins of one's own."""

from __future__ import annotations

from pathlib import Path

from lce_core.benchmarks import BENCHMARKS
from lce_core.corpora import CORPORA
from lce_core.methods import METHODS
from lce_core.models import MODELS


def add_plugin_folders(folders: tuple[Path, ...]) -> None:
    """Lets plug-ins in `<folder>/methods`, `/benchmarks`, `/models` and `/corpora` take part."""
    for folder in folders:
        METHODS.add_folder(folder / "methods")
        BENCHMARKS.add_folder(folder / "benchmarks")
        MODELS.add_folder(folder / "models")
        CORPORA.add_folder(folder / "corpora")
