"""Names of a variant: a method, applied frozen (without fine-tuning) or tuned.

The catalog has the same label as its SQL macro `variant_label`.
"""

from __future__ import annotations

CONTROL = "none"
"""Name of the method that leaves the model as it is. Its variants, the frozen and the fine-tuned
base model, are the controls of a study."""


def weights_label(frozen: bool) -> str:
    """Return "frozen" or "tuned"."""
    return "frozen" if frozen else "tuned"


def variant_label(method: str, frozen: bool) -> str:
    """Return the label for readers: "yarn", or "yarn tuned" for a tuned variant."""
    return method if frozen else f"{method} tuned"


def variant_name(method: str, frozen: bool) -> str:
    """Return the name in study files, folders and MLflow: "yarn", or "yarn-tuned"."""
    return method if frozen else f"{method}-tuned"


def variant_in_words(method: str, frozen: bool) -> str:
    """Return the label for sentences: a control is "the [fine-tuned] base model"."""
    if method != CONTROL:
        return variant_label(method, frozen)
    return "the base model" if frozen else "the fine-tuned base model"
