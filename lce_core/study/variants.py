"""Names of a variant: a method, applied to the frozen base model or after fine-tuning (tuned).

The catalog has SQL macros `variant_label` and `variant_name` that return the same.
"""

CONTROL = "none"
"""Method that changes nothing; its two variants are a study's controls."""


def weights_label(frozen: bool) -> str:
    return "frozen" if frozen else "tuned"


def variant_label(method: str, frozen: bool) -> str:
    """Return the name in tables and charts: "yarn", or "yarn tuned"."""
    return method if frozen else f"{method} tuned"


def variant_name(method: str, frozen: bool) -> str:
    """Return the name in study files, folders and MLflow: "yarn", or "yarn-tuned"."""
    return method if frozen else f"{method}-tuned"


def variant_in_words(method: str, frozen: bool) -> str:
    """Return the name in sentences: "yarn tuned", "the base model", "the fine-tuned base model"."""
    if method != CONTROL:
        return variant_label(method, frozen)
    return "the base model" if frozen else "the fine-tuned base model"
