"""The model that `lce export` writes: a variant of a study, with the origin of its weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lce_core.methods import Method
from lce_core.models import LanguageModel
from lce_core.store.records import Record


@dataclass(frozen=True)
class Subject:
    """A variant of a study (an entry of its `methods`), its base model and folder of weights."""

    study: str
    variant: str
    base_model: LanguageModel
    method: Method
    target_context: int
    """Context in tokens that the study extends to."""
    weights: Path
    """Folder with the weights, config.json and tokenizer to export."""
    training: Record | None = None
    """Record of the run that produced the weights; None for the base model's own weights."""
    digest: str | None = None
    """sha256 of the folder of weights; None if a hub commit or a training run identifies them."""
