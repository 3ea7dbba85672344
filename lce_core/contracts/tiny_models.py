"""Tiny random Llama (MHA, GQA) and Phi models, and the outputs of extended ones."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, PhiConfig, PhiForCausalLM

from lce_core.errors import SpecError
from lce_core.extension.extended_model import ExtendedModel
from lce_core.methods import Method
from lce_core.models import LanguageModel
from lce_core.rope import ContextLengths, RopeGeometry

VOCABULARY = 50
TRAINED = 16
TARGET = 64


class Tiny(LanguageModel):
    """Llama with as many key-value heads as query heads."""

    geometry: ClassVar[RopeGeometry] = RopeGeometry(
        head_dim=8, rotary_dim=8, num_heads=4, num_kv_heads=4, theta=1e4, trained_context=TRAINED
    )


class TinyGrouped(LanguageModel):
    """Llama with two query heads per key-value head."""

    geometry: ClassVar[RopeGeometry] = RopeGeometry(
        head_dim=8, rotary_dim=8, num_heads=4, num_kv_heads=2, theta=1e4, trained_context=TRAINED
    )


class TinyPhi(LanguageModel):
    """Phi, which applies RoPE to 4 of the 10 dimensions of each head."""

    geometry: ClassVar[RopeGeometry] = RopeGeometry(
        head_dim=10, rotary_dim=4, num_heads=4, num_kv_heads=4, theta=1e4, trained_context=TRAINED
    )


BASES: list[LanguageModel] = [Tiny(), TinyGrouped(), TinyPhi()]
LENGTHS = ContextLengths(TRAINED, TARGET, TARGET)


def stock(base: LanguageModel, layers: int = 2, **rope: Any) -> Any:
    """Return an unextended tiny float64 model, with random weights so large that positions matter.

    `rope` contains further entries of the configuration's `rope_parameters`.
    """
    geometry = base.geometry
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": geometry.num_heads * geometry.head_dim,
        "intermediate_size": 48,
        "num_hidden_layers": layers,
        "num_attention_heads": geometry.num_heads,
        "num_key_value_heads": geometry.num_kv_heads,
        "max_position_embeddings": TRAINED,
        "initializer_range": 0.3,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    rope = {"rope_type": "default", "rope_theta": geometry.theta, **rope}
    torch.manual_seed(7)
    if geometry.rotary_dim < geometry.head_dim:
        rope["partial_rotary_factor"] = geometry.rotary_dim / geometry.head_dim
        model: Any = PhiForCausalLM(PhiConfig(**sizes, rope_parameters=rope))
    else:
        model = LlamaForCausalLM(LlamaConfig(**sizes, rope_parameters=rope))
    return model.double().eval()


def fits(chosen: Method, base: LanguageModel) -> bool:
    try:
        chosen.check(base.geometry, LENGTHS)
    except SpecError:
        return False
    return True


def tokens(length: int, batch: int = 2, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (batch, length), generator=generator)


def logits(extended: ExtendedModel, ids: torch.Tensor, cuts: tuple[int, ...] = ()) -> torch.Tensor:
    """Return the logits of one request (batch, length, VOCABULARY), split into chunks at `cuts`."""
    extended.begin_request(ids.shape[1])
    head: Any = extended.model.get_output_embeddings()
    if not cuts:
        whole: torch.Tensor = head(extended.hidden_states(ids))
        return whole[..., :VOCABULARY]
    cache = DynamicCache()
    edges = [0, *cuts, ids.shape[1]]
    parts = [extended.hidden_states(ids[:, a:b], cache) for a, b in pairwise(edges)]
    joined: torch.Tensor = head(torch.cat(parts, dim=1))
    return joined[..., :VOCABULARY]
