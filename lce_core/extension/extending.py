"""Apply a context-extension method to a stock decoder of Hugging Face transformers.

For a method that only changes frequencies, the rotary module returns the cosines and sines of the
request's RoPE table, and layers use the same SDPA or flash attention as before. For attention
schemes, tables with one base per head and methods whose layers differ, it returns the identity (cos
= 1, sin = 0), so that the cache contains unrotated keys, and the attention function of
`lce_core.attention.registered` calls the kernel of the layer's scheme. No modelling file is forked.
One function of transformers is replaced (`lce_core.attention.rotary`).
"""

import copy
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel

from lce_core.attention.registered import ATTENTION, PACKAGE, STOCK, TORCH_FLASH
from lce_core.attention.rotary import keep_precision
from lce_core.errors import SpecError
from lce_core.extension.extended_model import ExtendedModel, checked_layers
from lce_core.extension.insertion import Inserter, reserve_token
from lce_core.extension.kernels import activate, choose
from lce_core.extension.learned import make_rotary
from lce_core.methods import Applied, Method, check_local, check_schemes
from lce_core.models import LanguageModel
from lce_core.recipe import Kernel, Rotation, TrainPositions
from lce_core.rope import ContextLengths
from lce_core.rope.architectures import ARCHITECTURES, Architecture

_FUNCTIONS = {
    "sdpa": STOCK,
    "torch_flash": TORCH_FLASH,
    "flash3": TORCH_FLASH,
    "flash_attention_2": PACKAGE,
}
"""Attention function of transformers for each kernel of models without attention schemes."""


def extend(
    model: PreTrainedModel,
    base_model: LanguageModel,
    method: Method,
    *,
    target: int,
    kernel: Kernel = "auto",
    compute_dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    training: bool = False,
    learned: Path | None = None,
    seed: int = 0,
    rotation: Rotation = "fp32",
    positions: TrainPositions = "exact",
) -> ExtendedModel:
    """Apply `method` to `model` in place; call `begin_request` before the first forward pass.

    The model should already have its final dtype, which determines the kernel.

    Args:
      target: context in tokens that the study extends to.
      compute_dtype: dtype in which attention computes, if autocast makes it differ from the
        weights' dtype.
      device: device to which the caller will move the model; None if it is already there.
      learned: file with trained values of the parameters that the method adds (CLEX's network);
        `seed` draws their initial values.
      rotation: "fp32" makes layers rotate queries and keys in at least float32. "stock" rotates as
        in transformers, where most architectures round cosines to the model's dtype.
    """
    geometry = base_model.geometry
    architecture = _checked_architecture(model, base_model)
    local, num_layers = base_model.local, model.config.num_hidden_layers
    keep_precision(model.config.model_type)
    lengths = ContextLengths(geometry.trained_context, target, target)
    method.check(geometry, lengths)
    if local is not None:
        check_local(method, pose=positions == "pose")
    applied = Applied(method, geometry, lengths, num_layers)
    check_schemes(applied, architecture)
    layers = checked_layers(applied, base_model, training=training)
    schemes = {layer.scheme for layer in layers if layer.scheme is not None}
    asked = (device or model.device, compute_dtype or model.dtype, kernel)
    name = "+".join(sorted({choose(*asked, scheme) for scheme in schemes or (None,)}))
    rotary = make_rotary(applied, identity=bool(schemes), seed=seed)
    rotary.stock_precision = rotation == "stock" and architecture.rounds_cosines
    rotary.repeats_cosines = architecture.repeats_cosines
    if geometry.rotary_dim < geometry.head_dim:
        rotary.rest_factor = 1 / geometry.attention_factor
    if learned is not None:
        rotary.load_state_dict(load_file(learned))
    decoder: Any = model.model
    decoder.rotary_emb = rotary
    rotary.attach(decoder.layers)
    _copy_configuration(model)
    if local is None and getattr(model.config, "sliding_window", None):
        # The window is at least as long as the trained context, so it never acted.
        model.config.sliding_window = None
    factor = getattr(model.config, "logit_scale", 1.0) / getattr(model.config, "logits_scaling", 1)
    if factor != 1.0:
        # Cohere and Granite scale logits by it, but lce calls decoder and head apart, and training
        # computes the loss from the head's weight.
        decoder.norm.register_forward_hook(lambda _norm, _given, states: states * factor)
    model.set_attn_implementation(ATTENTION if schemes else _FUNCTIONS[name])
    insertion = method.insertion(geometry)
    inserter = Inserter(insertion, reserve_token(model)) if insertion else None
    return ExtendedModel(
        model, method, base_model, target, name, rotary, training, inserter, positions
    )


def use_kernel(model: PreTrainedModel, kernel: Kernel, on: torch.device, dtype: torch.dtype) -> str:
    """Let a model without a method compute attention with `kernel`; return the kernel's name."""
    name = choose(on, dtype, kernel)
    activate(name)
    if name == "sdpa":
        return str(model.config._attn_implementation)  # "eager" where SDPA lacks something
    architecture = ARCHITECTURES[model.config.model_type]
    if architecture.sinks or architecture.soft_caps:
        what = "attention sinks" if architecture.sinks else "softly capped scores"
        raise SpecError(
            "kernel",
            f"{kernel!r} for {model.config.model_type}, which has {what}",
            "a kernel that computes them",
            "use kernel: sdpa",
        )
    _copy_configuration(model)
    model.set_attn_implementation(_FUNCTIONS[name])
    return name


def _copy_configuration(model: PreTrainedModel) -> None:
    # Modules share one configuration object, which other models may share too.
    shared, own = model.config, copy.deepcopy(model.config)
    module: Any
    for module in model.modules():
        if getattr(module, "config", None) is shared:
            module.config = own


def _checked_architecture(model: PreTrainedModel, base_model: LanguageModel) -> Architecture:
    """Return the model's architecture; raise SpecError if it differs from the base model's."""
    config, geometry = model.config, base_model.geometry
    if config.model_type not in ARCHITECTURES:
        raise SpecError(
            type(model).__name__,
            config.model_type,
            f"a model of type {', '.join(ARCHITECTURES)}",
            "load a model that `lce models` lists",
        )
    architecture = ARCHITECTURES[config.model_type]
    window = getattr(config, "sliding_window", None)
    if architecture.full_every is None and window and window < geometry.trained_context:
        raise SpecError(
            f"{type(model).__name__}.sliding_window",
            window,
            "full attention in every layer",
            "load a model without sliding windows",
        )
    rope = config.rope_parameters
    if architecture.local_theta is not None:
        rope = rope["full_attention"]
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    found = {
        "head_dim": head_dim,
        "rotary_dim": int(head_dim * rope.get("partial_rotary_factor", 1.0)),
        "num_heads": config.num_attention_heads,
        "num_kv_heads": config.num_key_value_heads,
        "theta": float(rope["rope_theta"]),
        "rope_type": rope["rope_type"],
    }
    if geometry.scaling is not None:
        # The plug-in compared the scaling with config.json, and the rotary module gets replaced.
        del found["rope_type"]
    for key, value in found.items():
        expected = "default" if key == "rope_type" else getattr(geometry, key)
        if value != expected:
            raise SpecError(
                f"{type(model).__name__}.{key}",
                value,
                f"{expected!r}, the value of the base model",
                "check that the folder has the weights of this base model, without scaled RoPE",
            )
    if architecture.full_every is not None and base_model.local is None:
        raise SpecError(
            f"{type(base_model).__name__}.local",
            f"None for a model of type {config.model_type}",
            "its layers with a sliding window",
            "return a LocalLayers from `local`, or use hub_model",
        )
    return architecture
