"""Check that a loaded model matches the description in its base model's plug-in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lce_core.errors import SpecError
from lce_core.rope import RopeGeometry
from lce_core.rope.architectures import ARCHITECTURES

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def check_model(model: PreTrainedModel, geometry: RopeGeometry) -> None:
    """Raise an error if architecture or geometry differ.

    Raises:
      SpecError: if they differ; the message names the difference.
    """
    config = model.config
    if config.model_type not in ARCHITECTURES:
        raise SpecError(
            type(model).__name__,
            config.model_type,
            f"a model of type {', '.join(ARCHITECTURES)}",
            "load one of `lce models`",
        )
    if window := getattr(config, "sliding_window", None):
        raise SpecError(
            f"{type(model).__name__}.sliding_window",
            window,
            "full attention in every layer",
            "load a model without sliding windows",
        )
    rope = config.rope_parameters
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    found = {
        "head_dim": head_dim,
        "rotary_dim": int(head_dim * rope.get("partial_rotary_factor", 1.0)),
        "num_heads": config.num_attention_heads,
        "num_kv_heads": config.num_key_value_heads,
        "theta": float(rope["rope_theta"]),
        "rope_type": rope["rope_type"],
    }
    for key, value in found.items():
        expected = "default" if key == "rope_type" else getattr(geometry, key)
        if value != expected:
            raise SpecError(
                f"{type(model).__name__}.{key}",
                value,
                f"{expected!r}, as the base model has it",
                "check that the folder holds the weights of this base model, without scaling",
            )
