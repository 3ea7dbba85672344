"""Read the sizes and the rotary embedding of a base model from its config.json.

The file is read as JSON, because transformers' reader loads torch, which planning avoids. SpecError
is raised here, before weights are downloaded, if methods cannot be applied to the model: for
example, if it has sliding windows, an already extended context or quantised weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from lce_core.errors import DataError, SpecError
from lce_core.models import Experts, ModelShape, read_config_json
from lce_core.recipe import STRICT
from lce_core.rope import RopeGeometry
from lce_core.rope.architectures import ARCHITECTURES

Config = Mapping[str, Any]

_MULTIMODAL_KEYS = ("text_config", "vision_config", "audio_config", "speech_config")


class ExpertFacts(BaseModel):
    """Sizes of a mixture of experts; see `Experts`."""

    model_config = STRICT

    total: int
    active: int
    width: int
    num_layers: int


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
    experts: ExpertFacts | None = None

    @property
    def geometry(self) -> RopeGeometry:
        return RopeGeometry(
            head_dim=self.head_dim,
            rotary_dim=self.rotary_dim,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            theta=self.theta,
            trained_context=self.trained_context,
        )

    @property
    def shape(self) -> ModelShape:
        return ModelShape(
            num_layers=self.num_layers,
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            vocab_size=self.vocab_size,
            gated_mlp=ARCHITECTURES[self.model_type].gated_mlp,
            tied_embeddings=self.tied_embeddings,
            experts=Experts(**self.experts.model_dump()) if self.experts else None,
        )


def read_facts(folder: Path, trained_context: int | None = None) -> Facts:
    """Read the folder's config.json, and check that methods can be applied to the model.

    Args:
      folder: the model's folder.
      trained_context: context in tokens that replaces the file's `max_position_embeddings`.

    Raises:
      SpecError: if methods cannot be applied to this model; the message says why.
      DataError: if the file cannot be read, or a key is missing or not a number.
    """
    file = folder / "config.json"
    config = read_config_json(folder)
    facts = Facts.model_validate(facts_of(config, str(file), trained_context))
    try:
        _ = facts.geometry
    except SpecError as error:
        raise error.within(f"{file}: {error.where}") from None
    return facts


def facts_of(config: Config, where: str, trained_context: int | None = None) -> dict[str, Any]:
    """Return the fields of `Facts` from a parsed config.json; errors begin with `where`."""
    for key, needed, instead in _obstacles(config, trained_context):
        given = config.get(key)
        raise SpecError(
            f"{where}: {key}",
            "nothing" if given is None else repr(given),
            f"a model to which methods can be applied: {needed}",
            f"name another model{instead}",
        )
    architecture, rope = ARCHITECTURES[config["model_type"]], _rope(config)

    def whole(key: str) -> int:
        given = config.get(key)
        if type(given) is not int or given < 1:
            raise _no_number(where, key, given, "a positive whole number")
        return given

    def number(key: str, default: float) -> float:
        given = rope.get(key, config.get(key, default))
        if type(given) not in (int, float) or not given > 0:
            raise _no_number(where, key, given, "a positive number")
        return float(given)

    heads, hidden = whole("num_attention_heads"), whole("hidden_size")
    follows = config.get("head_dim") is None and architecture.head_dim_follows
    head_dim = hidden // heads if follows else whole("head_dim")
    alike = config.get("num_key_value_heads") is None and architecture.all_heads_have_keys
    layers = whole("num_hidden_layers")
    experts = {}
    if architecture.expert_width:
        total = "num_experts" if "num_experts" in config else "num_local_experts"
        experts["experts"] = {
            "total": whole(total),
            "active": whole("num_experts_per_tok"),
            "width": whole(architecture.expert_width),
            "num_layers": _expert_layers(config, layers)
            if architecture.has_dense_layers
            else layers,
        }
    return {
        "model_type": config["model_type"],
        "num_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": whole("intermediate_size"),
        "vocab_size": whole("vocab_size"),
        "tied_embeddings": bool(config.get("tie_word_embeddings", architecture.tied_embeddings)),
        "head_dim": head_dim,
        "rotary_dim": int(
            head_dim * number("partial_rotary_factor", architecture.partial_rotary_factor)
        ),
        "num_heads": heads,
        "num_kv_heads": heads if alike else whole("num_key_value_heads"),
        "theta": number("rope_theta", architecture.default_theta),
        "trained_context": trained_context or whole("max_position_embeddings"),
        **experts,
    }


def _expert_layers(config: Config, num_layers: int) -> int:
    """Count the layers whose MLP is a mixture of experts."""
    every, plain = config.get("decoder_sparse_step", 1), config.get("mlp_only_layers") or ()
    return sum(layer not in plain and (layer + 1) % every == 0 for layer in range(num_layers))


def _obstacles(config: Config, trained_context: int | None) -> Iterator[tuple[str, str, str]]:
    """Yield (key, required value, hint) for each key because of which methods cannot be applied.

    The hint is the end of the remedy "name another model": "", or for example ", such as a
    converted checkpoint".
    """
    for key in _MULTIMODAL_KEYS:
        if config.get(key) is not None:
            yield key, "a text-only model", ", such as a checkpoint of its language model"
    if config.get("is_encoder_decoder"):
        yield "is_encoder_decoder", "a decoder without encoder", ""
    if config.get("auto_map"):
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
        yield from _windows(config)
        yield from _scalings(config, trained_context)
    else:
        yield "model_type", f"rotary embedding as in {', '.join(ARCHITECTURES)}", ""


def _windows(config: Config) -> Iterator[tuple[str, str, str]]:
    full = "full attention in every layer, without sliding windows"
    slides = ARCHITECTURES[config["model_type"]].slides
    if any(kind != "full_attention" for kind in config.get("layer_types") or ()):
        yield "layer_types", full, ""
    if config.get("use_bidirectional_attention"):
        yield "use_bidirectional_attention", "causal attention", ""
    # `use_sliding_window` takes precedence: Qwen2 states a window size but switches it off.
    window = config.get("sliding_window", "a default" if slides else None)
    if config.get("use_sliding_window", "use_sliding_window" not in config and window is not None):
        key = "use_sliding_window" if config.get("use_sliding_window") else "sliding_window"
        yield key, full, ", such as a Mistral from v0.2 on, without window" if slides else ""


def _scalings(config: Config, trained_context: int | None) -> Iterator[tuple[str, str, str]]:
    rope = _rope(config)
    key = "rope_parameters" if config.get("rope_parameters") else "rope_scaling"
    kind = rope.get("rope_type", rope.get("type", "default"))
    layered = any(isinstance(value, Mapping) for value in rope.values())
    if kind != "default" or layered:
        shown = "a table for each kind of layer" if layered else f"rope_type {kind}"
        yield (
            key,
            f"rope_type default ({shown} already changes the frequencies that a method would"
            " change)",
            ", such as the checkpoint from before its context was extended",
        )
    before = rope.get(_ORIGINAL, config.get(_ORIGINAL))
    if trained_context is None and before not in (None, config.get("max_position_embeddings")):
        yield (
            "max_position_embeddings",
            f"the same trained context as {_ORIGINAL}, which is {before}",
            ", or write the context this model was trained with as `trained_context: N`",
        )


_ORIGINAL = "original_max_position_embeddings"


def _rope(config: Config) -> Config:
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return rope if isinstance(rope, Mapping) else {"rope_type": rope}


def _no_number(where: str, key: str, given: object, expected: str) -> DataError:
    return DataError(
        f"{where}: {key}",
        "nothing" if given is None else repr(given),
        f"{expected} for this key",
        "copy or download the model again",
    )
