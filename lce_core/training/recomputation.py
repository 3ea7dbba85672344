"""Activation checkpointing: which activations a layer keeps for the backward pass, and where.

| name | what each layer keeps | what the backward pass recomputes |
|---|---|---|
| none | all activations | nothing |
| attention | its input, and attention's output and log-sum-exp | all other activations |
| full | its input | the whole layer |
| offload | its input, in the host's memory | the whole layer |

Recomputation runs the same kernels, so results are the same, bit for bit if the kernels sum in a
fixed order. Keeping attention pays off for long rows: from 32k tokens on, attention is at least 40
percent of the work of training Llama-2-7B, but its output is a small part of a layer's activations.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from lce_core.attention.observed import FUSED

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Kept = Literal["none", "attention", "full", "offload"]
"""Activations that each layer keeps for the backward pass: all ("none"), its input and attention's
output ("attention"), only its input ("full"), or its input in host memory ("offload"). Ordered by
GPU memory, largest first; a run that is out of memory tries the next one."""


def enable(model: PreTrainedModel, kept: Kept) -> None:
    """Switch on activation checkpointing in the model's layers; "none" changes nothing."""
    if kept == "none":
        return
    settings: dict[str, Any] = {"use_reentrant": False}
    if kept == "attention":
        settings["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)
    # Releases 5.x of transformers before the rename only have the second name.
    names = ("activation_checkpointing_enable", "gradient_checkpointing_enable")
    found = next(getattr(model, name) for name in names if hasattr(model, name))
    found(settings)


def storage(kept: Kept, device: torch.device) -> AbstractContextManager[object]:
    """Return a context manager for the forward pass.

    With "offload", it moves tensors saved for the backward pass to host memory; otherwise it does
    nothing.
    """
    if kept != "offload":
        return nullcontext()
    return torch.autograd.graph.save_on_cpu(pin_memory=device.type == "cuda")


def _policy(_context: object, operator: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
    kept = operator.name() in FUSED
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE
