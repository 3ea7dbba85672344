"""Activation checkpointing: which activations a layer keeps for the backward pass, and where.

| name | what each layer keeps | what the backward pass recomputes |
|---|---|---|
| none | all activations | nothing |
| attention | its input, and attention's output and log-sum-exp | all other activations |
| attention:K | the first K layers as for "attention", all others as for "full" | |
| full | its input | the whole layer |
| offload | its input, in the host's memory | the whole layer |

From 32k tokens on, attention is at least 40 percent of the work of training Llama-2-7B, but its
output is a small part of a layer's activations.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from transformers.modeling_layers import GradientCheckpointingLayer

from lce_core.extension.kernels import FUSED

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def every_kept(num_layers: int) -> list[str]:
    """Return all names of the table above for a model, ordered by GPU memory, largest first."""
    mixed = [f"attention:{first}" for first in range(num_layers - 1, 0, -1)]
    return ["none", "attention", *mixed, "full", "offload"]


def attention_layers(kept: str, num_layers: int) -> int:
    name, _, first = kept.partition(":")
    if name != "attention":
        return 0
    return min(int(first), num_layers) if first else num_layers


def enable(model: PreTrainedModel, kept: str) -> None:
    if kept == "none":
        return
    settings: dict[str, Any] = {"use_reentrant": False}
    # Also in a sharded model, whose layers have another class.
    layers: list[Any] = [
        part for part in model.modules() if isinstance(part, GradientCheckpointingLayer)
    ]
    keeping = attention_layers(kept, len(layers))
    if keeping:
        settings["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)
    # Releases 5.x of transformers before the rename only have the second name.
    names = ("activation_checkpointing_enable", "gradient_checkpointing_enable")
    found = next(getattr(model, name) for name in names if hasattr(model, name))
    found(settings)
    if keeping:
        for layer in layers[keeping:]:
            layer._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)


def storage(kept: str, device: torch.device) -> AbstractContextManager[object]:
    if kept != "offload":
        return nullcontext()
    return torch.autograd.graph.save_on_cpu(pin_memory=device.type == "cuda")


def _policy(_context: object, operator: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    kept = operator.name() in FUSED
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
