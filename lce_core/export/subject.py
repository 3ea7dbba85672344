"""What is exported: a variant of a study, with its weights and where they come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lce_core.methods import Method
from lce_core.models import LanguageModel
from lce_core.store.records import Record


@dataclass(frozen=True)
class Subject:
    """A variant of a study, and where its weights lie."""

    study: str
    variant: str
    base_model: LanguageModel
    method: Method
    target_context: int
    """In tokens."""
    weights: Path
    """Folder of a model of the base model's architecture."""
    training: Record | None = None
    """Of the run that the weights come from; None for the base model's own."""
    digest: str | None = None
    """Of a folder that took the hub's place, or of published weights."""
