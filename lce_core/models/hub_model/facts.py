"""Read the sizes and the rotary embedding of a base model from its config.json.

The file is read as JSON, because transformers' reader loads torch, which planning avoids.
"""

import math
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from lce_core.errors import DataError, LceError, SpecError
from lce_core.models import Experts, LocalLayers, ModelShape, read_config_json
from lce_core.models._weights import damaged
from lce_core.recipe import STRICT
from lce_core.rope import RopeGeometry, Scaling
from lce_core.rope.architectures import ARCHITECTURES, NO_ROPE_INTERVAL, REASONS, Architecture
from lce_core.rope.stated import (
    FULL,
    ORIGINAL,
    PLAIN,
    SLIDING,
    rope_key,
    stated_parameters,
    stated_table,
)

Config = Mapping[str, Any]

_MAX_SIZE = 1 << 22
_MAX_SIZES = {
    "num_hidden_layers": 1000,
    "num_attention_heads": 4096,
    "num_key_value_heads": 4096,
    "head_dim": 1 << 14,
    "max_position_embeddings": 1 << 30,
}
"""Maximum sizes, several times those of any published model. Planning takes time and memory in
proportion to some of them."""
_MULTIMODAL_KEYS = ("text_config", "vision_config", "audio_config", "speech_config")


class Facts(BaseModel):
    """Sizes and rotary embedding of a model; part of the identity of a study's base model."""

    model_config = STRICT

    model_type: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    tied_embeddings: bool
    head_dim: int
    rotary_dim: int
    num_heads: int
    num_kv_heads: int
    theta: float
    trained_context: int
    experts: Experts | None = None
    scaling: Scaling | None = None
    local: LocalLayers | None = None
    unrotated: tuple[int, ...] = ()

    @property
    def geometry(self) -> RopeGeometry:
        return RopeGeometry(**self._of(RopeGeometry))

    @property
    def shape(self) -> ModelShape:
        gated = ARCHITECTURES[self.model_type].gated_mlp
        return ModelShape(**self._of(ModelShape), gated_mlp=gated)

    def _of(self, kind: type[RopeGeometry | ModelShape]) -> dict[str, Any]:
        names = [field.name for field in fields(kind)]
        return {name: getattr(self, name) for name in names if name in Facts.model_fields}


def read_facts(folder: Path, trained_context: int | None = None) -> Facts:
    """Read and check config.json; `trained_context` replaces `max_position_embeddings`."""
    config = language_model_of(read_config_json(folder))
    return checked_facts(config, folder / "config.json", trained_context)


def checked_facts(config: Config, file: Path, trained_context: int | None) -> Facts:
    try:
        facts = Facts.model_validate(facts_of(config, str(file), trained_context))
    except LceError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = str(error).replace("\n", " ")
        got = f"a value of the wrong type or size ({type(error).__name__}: {reason:.200})"
        expected = "a config.json as transformers writes it for this model type"
        raise damaged(file, got, expected) from error
    try:
        _ = facts.geometry
    except SpecError as error:
        raise error.within(f"{file}: {error.where}") from None
    return facts


def facts_of(config: Config, where: str, trained_context: int | None = None) -> dict[str, Any]:
    """Return the fields of `Facts` from a parsed config.json."""
    architecture = ARCHITECTURES.get(str(config.get("model_type")), Architecture())
    config = {**architecture.defaults, **config}
    _refuse(_obstacles(config, architecture), config, where)
    rope = stated_parameters(config, where)
    _refuse(_scalings(config, architecture, rope, trained_context), config, where)

    def whole(key: str) -> int:
        given, most = config.get(key), _MAX_SIZES.get(key, _MAX_SIZE)
        if type(given) is not int or given < 1:
            raise _no_number(where, key, given, "a positive whole number")
        if given > most:
            raise _no_number(where, key, given, f"at most {most:,}")
        return given

    def number(key: str, default: float = 0.0) -> float:
        given = rope.get(key, default)
        if type(given) not in (int, float) or not 0 < given < math.inf:
            raise _no_number(where, key, given, "a positive number")
        return float(given)

    heads, hidden = whole("num_attention_heads"), whole("hidden_size")
    head_dim = hidden // heads if config.get("head_dim") is None else whole("head_dim")
    alike = config.get("num_key_value_heads") is None and architecture.all_heads_have_keys
    layers = whole("num_hidden_layers")
    found = {
        "model_type": config["model_type"],
        "num_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": whole("intermediate_size"),
        "vocab_size": whole("vocab_size"),
        "tied_embeddings": bool(config.get("tie_word_embeddings")),
        "head_dim": head_dim,
        "rotary_dim": int(
            head_dim * number("partial_rotary_factor", architecture.partial_rotary_factor or 1.0)
        ),
        "num_heads": heads,
        "num_kv_heads": heads if alike else whole("num_key_value_heads"),
        "theta": number("rope_theta"),
        "trained_context": trained_context or whole("max_position_embeddings"),
    }
    if architecture.expert_width:
        found["experts"] = Experts(
            total=whole("num_experts" if "num_experts" in config else "num_local_experts"),
            active=whole("num_experts_per_tok"),
            width=whole(architecture.expert_width),
            num_layers=_expert_layers(config, layers) if architecture.has_dense_layers else layers,
        )
    if architecture.full_every is not None:
        default = architecture.local_theta
        found["local"] = LocalLayers(
            layers=tuple(_local_layers(config, layers, architecture.full_every)),
            window=whole("sliding_window"),
            theta=None if default is None else _local_theta(config, default),
        )
    if NO_ROPE_INTERVAL in architecture.defaults:
        every = whole(NO_ROPE_INTERVAL)
        found["unrotated"] = _unrotated(config.get("no_rope_layers"), layers, every, where)
    if rope["rope_type"] != PLAIN:
        found["scaling"], contexts = _scaling(config, rope, found, where)
        if trained_context is None:
            found["trained_context"] = _only(contexts, config, where)
    return found


def language_model_of(config: Config) -> Config:
    """Return the language model's part of a Gemma 3 with vision, and other files unchanged."""
    text = config.get("text_config")
    if config.get("model_type") != "gemma3" or not isinstance(text, Mapping):
        return config
    whole = {key: config.get(key) for key in ("auto_map", "quantization_config")}
    return {**whole, **text, "model_type": "gemma3_text"}


def _refuse(obstacles: Iterator[tuple[str, str, str]], config: Config, where: str) -> None:
    for key, needed, instead in obstacles:
        given = config.get(key)
        shown = textwrap.shorten(repr(given), 120) if key == "text_config" else _shown(given)
        raise SpecError(
            f"{where}: {key}",
            "nothing" if given is None else shown,
            f"a model to which methods can be applied: {needed}",
            f"name another model{instead}",
        )


def _shown(given: object) -> str:
    """Quote a value; of a list of numbers, such as LongRoPE's factors, only the range."""
    if isinstance(given, Mapping):
        return f"{{{', '.join(f'{key!r}: {_shown(value)}' for key, value in given.items())}}}"
    if isinstance(given, list) and given and all(type(one) in (int, float) for one in given):
        return f"[{min(given)} ... {max(given)}, {len(given)} numbers]"
    return repr(given)


def _local_layers(config: Config, num_layers: int, full_every: int) -> Iterator[int]:
    kinds, every = config.get("layer_types"), config.get("sliding_window_pattern", full_every)
    for layer in range(num_layers):
        if kinds[layer] == SLIDING if kinds else (layer + 1) % every:
            yield layer


def _unrotated(stated: object, num_layers: int, every: int, where: str) -> tuple[int, ...]:
    # In spite of its name, `no_rope_layers` has a 1 for each layer with RoPE.
    rotates = stated or [(layer + 1) % every for layer in range(num_layers)]
    if not isinstance(rotates, list) or len(rotates) < num_layers or not any(rotates[:num_layers]):
        expected = "a 0 or 1 for each layer, 1 for some layer,"
        raise _no_number(where, "no_rope_layers", stated, expected)
    return tuple(layer for layer in range(num_layers) if not rotates[layer])


def _local_theta(config: Config, default: float) -> float:
    stated = config.get("rope_parameters") or {}
    local = stated.get(SLIDING) or {}
    older: float = config.get("rope_local_base_freq", default)
    return float(local.get("rope_theta", older))


def _scaling(
    config: Config, rope: Config, found: Mapping[str, Any], where: str
) -> tuple[Scaling, set[int]]:
    sizes = ("head_dim", "rotary_dim", "num_heads", "num_kv_heads", "theta", "trained_context")
    plain = RopeGeometry(**{key: found[key] for key in sizes})
    context = config.get("max_position_embeddings") or plain.trained_context
    try:
        with np.errstate(all="ignore"):
            table = stated_table(rope, plain, int(context), plain.trained_context)
            multipliers = table.inv_freq / plain.inv_freq()
        contexts = _scaled_contexts(rope, int(context))
    except (KeyError, TypeError, ValueError, ArithmeticError, SpecError) as error:
        raise unreadable_rope(f"{where}: {rope_key(config)}", rope, error) from error
    multiples = tuple(multipliers.tolist())
    return Scaling(rope["rope_type"], multiples, table.attention_factor), contexts


def unreadable_rope(where: str, rope: Config, error: Exception) -> DataError:
    got = f"{_shown(rope)}, which cannot be read ({type(error).__name__}: {error})"
    return damaged(
        where, got, f"valid values for all keys that rope_type {rope['rope_type']!r} needs"
    )


def _scaled_contexts(rope: Config, largest: int) -> set[int]:
    # Some publishers write the context after scaling to `max_position_embeddings`, others the one
    # before it, as Qwen's and Vicuna's instructions say.
    before = rope.get(ORIGINAL)
    # Without a factor, transformers takes the ratio of the contexts.
    scaled = int((before or largest) * rope["factor"]) if rope.get("factor") else largest
    if before is not None:
        # The factor of llama3 and longrope need not be the ratio of the contexts: Llama 3.1 has
        # the factor 8 and extends from 8,192 to 131,072 tokens.
        if rope["rope_type"] in ("llama3", "longrope"):
            scaled = max(scaled, largest) if before == largest else largest
        elif before <= largest <= scaled:
            return {scaled}
    return {largest, scaled}


def _only(contexts: set[int], config: Config, where: str) -> int:
    if len(contexts) > 1:
        low, high = sorted(contexts)
        raise SpecError(
            f"{where}: {rope_key(config)}",
            f"scaled RoPE that may have been trained for {low} or for {high} tokens",
            "one trained context",
            f"write `trained_context: {low}` in the base model's entry, or {high} if the publisher"
            " states that this context was trained",
        )
    return contexts.pop()


def _expert_layers(config: Config, num_layers: int) -> int:
    every, plain = config.get("decoder_sparse_step", 1), config.get("mlp_only_layers") or ()
    return sum(layer not in plain and (layer + 1) % every == 0 for layer in range(num_layers))


def _obstacles(config: Config, architecture: Architecture) -> Iterator[tuple[str, str, str]]:
    """Yield (key, required value, hint) for each key that keeps methods from being applied.

    The hint ends the remedy "name another model": "", or ", such as a converted checkpoint".
    """
    text = config.get("text_config")
    if isinstance(text, Mapping) and (reason := lacks(text)):
        yield "text_config", reason, ""
    for key in _MULTIMODAL_KEYS:
        if config.get(key) is not None:
            yield key, "a text-only model", ", such as a checkpoint of its language model"
    if config.get("is_encoder_decoder"):
        yield "is_encoder_decoder", "a decoder without encoder", ""
    if config.get("auto_map") and not architecture.has_own_code:
        yield (
            "auto_map",
            "no code beside the weights, because such code is never run",
            ", such as a checkpoint converted for transformers",
        )
    if config.get("quantization_config"):
        yield (
            "quantization_config",
            "weights in floating point",
            ", such as the checkpoint before quantisation",
        )
    named = config.get("architectures") or ["ForCausalLM"]
    if not any(str(name).endswith("ForCausalLM") for name in named):
        yield "architectures", "a language-model head, ...ForCausalLM", ""
    if config.get("model_type") in ARCHITECTURES:
        yield from _windows(config, architecture)
    else:
        known = f"a model type that was compared with transformers ({', '.join(ARCHITECTURES)})"
        yield "model_type", lacks(config) or known, ""


def lacks(config: Config) -> str | None:
    """Return what methods need and this kind of model does not have, if that is known."""
    kinds = config.get("layer_types")
    if config.get("kv_lora_rank"):
        return REASONS["deepseek_v3"]
    if isinstance(kinds, list) and "linear_attention" in kinds:
        return REASONS["qwen3_next"]
    return REASONS.get(str(config.get("model_type")))


def _windows(config: Config, architecture: Architecture) -> Iterator[tuple[str, str, str]]:
    kinds = config.get("layer_types") or ()
    if config.get("use_bidirectional_attention"):
        yield "use_bidirectional_attention", "causal attention", ""
    if architecture.full_every is not None:
        for key in ("attn_logit_softcapping", "final_logit_softcapping"):
            if config.get(key) and not architecture.soft_caps:
                yield key, "scores and logits without a soft cap", ""
        if not set(kinds) <= {FULL, SLIDING} or (kinds and FULL not in kinds):
            yield "layer_types", f"{SLIDING} and {FULL}, and some layer with {FULL}", ""
        local = (config.get("rope_parameters") or {}).get(SLIDING) or {}
        if local.get("rope_type", PLAIN) != PLAIN:
            yield "rope_parameters", f"unscaled RoPE in layers with {SLIDING}", ""
        return
    full = "full attention in every layer, or a window at least as long as the context"
    if any(kind != FULL for kind in kinds):
        yield "layer_types", full, ""
    window, context = config.get("sliding_window"), config.get("max_position_embeddings")
    longer = isinstance(window, int) and isinstance(context, int) and window >= context
    # `use_sliding_window` takes precedence: Qwen2 states a window size but switches it off.
    if config.get("use_sliding_window"):
        yield "use_sliding_window", full, ""
    elif window is not None and "use_sliding_window" not in config and not longer:
        yield "sliding_window", full, ", such as a Mistral from v0.2 on, without window"


_EXTENDED = ("linear", "llama3", "yarn", "longrope")
"""Values of `rope_type` of scaled models that methods can extend further."""


def _scalings(
    config: Config, architecture: Architecture, rope: Config, trained_context: int | None
) -> Iterator[tuple[str, str, str]]:
    key, kind = rope_key(config), rope["rope_type"]
    if architecture.scaled_by_default and not config.get(key):
        yield key, "rotary settings, because transformers would assume scaled RoPE", ""
    if kind not in (PLAIN, *_EXTENDED):
        yield (
            key,
            f"rope_type {PLAIN}, {', '.join(_EXTENDED)}, whose frequencies are the same for every"
            " text and above 0",
            ", such as the checkpoint from before its context was extended",
        )
    largest = config.get("max_position_embeddings")
    # Qwen2.5-1M needs dual chunk attention beyond its trained context, but states the longer one as
    # `max_position_embeddings`. transformers has no such attention and ignores the key.
    chunks = config.get("dual_chunk_attention_config")
    whole = chunks.get(ORIGINAL) if isinstance(chunks, Mapping) else None
    before = rope.get(ORIGINAL) or whole
    two_tables = kind == "longrope" and rope.get("long_factor") != rope.get("short_factor")
    if two_tables and trained_context is None:
        yield (
            key,
            "the same frequencies for every text (short_factor and long_factor differ)",
            f", or state `trained_context`: {before} extends the model with short_factor,"
            f" {largest} extends it with long_factor for texts of every length",
        )
    if kind == PLAIN and trained_context is None and before not in (None, largest):
        yield (
            "max_position_embeddings",
            f"the same trained context as {ORIGINAL}, which is {before}",
            ", or write the context this model was trained with as `trained_context: N`",
        )
    share = rope.get("partial_rotary_factor", architecture.partial_rotary_factor or 1)
    if kind != PLAIN and share != 1:
        if architecture.partial_rotary_factor is None:
            yield (
                "partial_rotary_factor",
                "heads that are rotated as a whole, because transformers cannot run this model type"
                " with scaled RoPE on parts of them",
                "",
            )
        if kind in ("yarn", "longrope") and not architecture.passes_heads:
            yield (
                key,
                "no attention factor, because transformers applies it to the rotated elements of a"
                " head, which this model's layers split before lce can scale the others",
                "",
            )


def _no_number(where: str, key: str, given: object, expected: str) -> DataError:
    got = "nothing" if given is None else repr(given)
    return damaged(f"{where}: {key}", got, f"{expected} for this key")
