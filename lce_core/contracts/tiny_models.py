"""Tiny random models (Llama with MHA and GQA, Phi), and other inputs for the checks of methods."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, PhiConfig, PhiForCausalLM

from lce_core.attention import LayerAttention
from lce_core.contracts.plugins import built
from lce_core.errors import SpecError
from lce_core.evaluation.cross_entropy import Head
from lce_core.evidence import LLAMA2_7B, PHI2
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.methods import Applied, Method, layers_of
from lce_core.models import LanguageModel
from lce_core.rope import ContextLengths, RopeGeometry

Example = Mapping[str, Any]

VOCABULARY = 50
TRAINED = 16
TARGET = 64
LAYERS = 4
"""Four layers show methods that treat every second or fourth layer differently."""
FAR = (LLAMA2_7B, PHI2, RopeGeometry(32, 32, 2, 2, 1e4, 128))


class Tiny(LanguageModel):
    """Llama with as many key-value heads as query heads."""

    geometry: ClassVar[RopeGeometry] = RopeGeometry(8, 8, 4, 4, 1e4, TRAINED)


class TinyGrouped(LanguageModel):
    """Llama with two query heads per key-value head."""

    geometry: ClassVar[RopeGeometry] = RopeGeometry(8, 8, 4, 2, 1e4, TRAINED)


class TinyPhi(LanguageModel):
    """Phi, which applies RoPE to 4 of the 10 dimensions of each head."""

    geometry: ClassVar[RopeGeometry] = RopeGeometry(10, 4, 4, 4, 1e4, TRAINED)


BASES: list[LanguageModel] = [Tiny(), TinyGrouped(), TinyPhi()]
LENGTHS = ContextLengths(TRAINED, TARGET, TARGET)


def stock(base: LanguageModel, layers: int = 2, **rope: Any) -> Any:
    """Return a tiny float64 model with random weights so large that positions matter."""
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


def logits(
    extended: ExtendedModel,
    ids: torch.Tensor,
    cuts: tuple[int, ...] = (),
    *,
    preallocated: bool = False,
) -> torch.Tensor:
    """Return the logits (batch, length, VOCABULARY) of a request, in chunks that share a cache."""
    extended.begin_request(ids.shape[1])
    head = Head.of(extended.model)
    if not cuts:
        return head.logits(extended.hidden_states(ids))[..., :VOCABULARY]
    cache = extended.new_cache(ids.shape[1]) if preallocated else DynamicCache()
    edges = [0, *cuts, ids.shape[1]]
    parts = [extended.hidden_states(ids[:, a:b], cache) for a, b in pairwise(edges)]
    return head.logits(torch.cat(parts, dim=1))[..., :VOCABULARY]


def rows_of(lengths: ContextLengths) -> list[ContextLengths]:
    """Return the lengths with training rows of 2 tokens, the trained and the target context."""
    return [replace(lengths, request=n) for n in (2, lengths.trained, lengths.target)]


def at(request: int) -> ContextLengths:
    return ContextLengths(TRAINED, TARGET, request)


def fitting(method: Method) -> list[LanguageModel]:
    """Return the tiny models, the plain Llama among them, that the method's parameters accept."""
    found = [base for base in BASES if fits(method, base)]
    if BASES[0] not in found:
        method.check(BASES[0].geometry, at(TARGET))
    return found


def extended_models(
    plugin: type[Method], example: Example
) -> list[tuple[LanguageModel, ExtendedModel]]:
    method = built(plugin, example)
    return [
        (base, _taught(extend(stock(base), base, method, target=TARGET)))
        for base in fitting(method)
    ]


def length_in_reach(extended: ExtendedModel) -> int:
    """Return the length of test texts: 40 tokens, or the longest request the method supports."""
    reach = extended.method.reach(extended.geometry, at(TARGET))
    length = 40 if reach is None else min(40, reach)
    assert length > TRAINED, f"a reach of {reach} tokens is not beyond the trained {TRAINED}"
    return length


def schemes(method: Method, geometry: RopeGeometry, *, training: bool = True) -> list[Any]:
    """Return the schemes that the method defines for inference and, if `training`, for training."""
    uses = (False, True) if training else (False,)
    found = {layer for use in uses for layer in layers(method, geometry, at(TARGET), training=use)}
    return [layer.scheme for layer in found if layer.scheme is not None]


def layers(
    method: Method, geometry: RopeGeometry, lengths: ContextLengths, *, training: bool = False
) -> tuple[LayerAttention, ...]:
    return layers_of(Applied(method, geometry, lengths, LAYERS), training=training)


def keys(method: Method, geometry: RopeGeometry, lengths: ContextLengths) -> list[object]:
    """Return for each layer a value that is equal if frequencies and attention are."""
    return [layer.key for layer in layers(method, geometry, lengths)]


def close(found: torch.Tensor, expected: torch.Tensor, where: str) -> None:
    worst = (found - expected).abs().max().item()
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-9), f"{where}: off by {worst:.3g}"


def name_of(base: LanguageModel) -> str:
    return type(base).__name__


def perturbed(value: Any, plugin: type[Method], name: str) -> list[Any]:
    """Return other values to try for the parameter `name`: choices, and numbers for None."""
    choices = plugin.model_json_schema()["properties"][name]
    enums = [one.get("enum", []) for one in (choices, *choices.get("anyOf", ()))]
    found: list[Any] = [one for enum in enums for one in enum if one != value]
    match value:
        case bool():
            found += [not value]
        case int():
            found += [value + 1, 2 * value, max(1, value // 2)]
        case float():
            found += [1.5 * value, value / 2]
        case tuple():
            found.append([*value[::-1]])
            if all(isinstance(one, int | float) for one in value):
                found.append([1.25 * one for one in value])
        case None:
            found += [2, 2.0, 4, 4.0, 0.5, 8]
    return found


def behaviour(method: Method) -> list[Any]:
    outputs: list[Any] = [method.lora()]
    for geometry in (*(base.geometry for base in BASES), *FAR):
        trained = geometry.trained_context
        for request in (trained, 4 * trained, 64 * trained):
            lengths = ContextLengths(trained, 4 * trained, request)
            try:
                method.check(geometry, lengths)
            except SpecError as error:
                outputs.append(str(error))
                continue
            outputs += _outputs(method, geometry, lengths)
    return outputs


def _outputs(method: Method, geometry: RopeGeometry, lengths: ContextLengths) -> list[Any]:
    outputs: list[Any] = [keys(method, geometry, lengths), method.insertion(geometry)]
    outputs += [method.training_attention(geometry, lengths), method.reach(geometry, lengths)]
    outputs += [method.stages(lengths), method.length_dependent(geometry, lengths)]
    rows = [method.training_positions(seed, row) for seed in range(4) for row in rows_of(lengths)]
    outputs += [None if positions is None else list(positions) for positions in rows]
    base = next((base for base in BASES if base.geometry == geometry), None)
    if method.rotary is not None and base is not None:
        # The frequencies that the method's rotary module computes from random parameters.
        extended = _taught(extend(stock(base), base, method, target=lengths.target))
        extended.begin_request(lengths.request)
        outputs.append(extended.model.model.rotary_emb.table.inv_freq.tolist())
    return outputs


def _taught(extended: ExtendedModel) -> ExtendedModel:
    """Draw the parameters that the method adds, as if they were trained."""
    generator = torch.Generator().manual_seed(3)
    for weight in extended.model.model.rotary_emb.parameters():
        weight.copy_(0.1 * torch.randn(weight.shape, generator=generator))
    return extended


def with_another_value(
    plugin: type[Method], example: Example, name: str
) -> list[tuple[Method, Method]]:
    method = built(plugin, example)
    values = [one[name] for one in plugin.examples if name in one]
    values = values or perturbed(getattr(method, name), plugin, name)
    others = [{**example, name: value} for value in values]
    if not plugin.model_fields[name].is_required():
        others.append({key: value for key, value in example.items() if key != name})
    found = []
    for parameters in others:
        try:
            other = built(plugin, parameters)
        except ValueError:
            continue
        if other != method:
            found.append((method, other))
    return found
