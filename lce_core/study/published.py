"""Find the published weights of a variant (its `checkpoint`) and check that they fit the study.

The sizes in config.json must equal the base model's. If it states scaled RoPE frequencies, these
must equal the frequencies of the study's method at the target context. Many published checkpoints
state no scaling; their frequencies cannot be checked.

This module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lce_core.errors import DataError, SpecError, StoreError, UnavailableError
from lce_core.methods import request_table
from lce_core.models import LanguageModel, read_config_json, require_whole, weights_digest
from lce_core.rope import ContextLengths, RopeTable
from lce_core.rope.stated import PLAIN, TYPES, stated_parameters, stated_table
from lce_core.study.spec import MethodEntry

MOST_ADDED_TOKENS = 64
"""Tokens by which a checkpoint's vocabulary may exceed the base model's (padding, added ones)."""
_AGREEMENT = 1e-6
"""Relative difference of equal RoPE frequencies, for rounding in published bases and factors."""
_ADAPTER = "adapter_config.json"
_LEARNED = "extension.safetensors"
_INSERTED = "landmark_token_id"


@dataclass(frozen=True)
class Data:
    """Digest of a plug-in's local input, or why it is missing; both None without local input."""

    digest: str | None
    absent: str | None

    @classmethod
    def of(cls, digest: Callable[[], str | None]) -> Data:
        """Store the result of `digest`, or the message of its UnavailableError as `absent`."""
        try:
            return cls(digest(), None)
        except UnavailableError as error:
            return cls(None, str(error))


def published_weights(
    base_model: LanguageModel,
    variant: MethodEntry,
    target: int,
    folders: Mapping[str, Path],
    where: str,
) -> Data:
    """Check a variant's published weights; return their digest, or why they are missing.

    Raises:
      SpecError: if the folder's content contradicts the entry.
      DataError: if config.json cannot be read or a weights file is damaged.
    """
    if (name := variant.checkpoint) is None:
        return Data(None, None)
    if (folder := folders.get(name)) is None:
        missing = UnavailableError(
            f"checkpoint {name}",
            "no folder of that name",
            "the folder with these published weights",
            f"download the weights and add --model-folder {name}=FOLDER",
        )
        return Data(None, str(missing))
    _require_weights(folder)
    config = read_config_json(folder)
    check_sizes(base_model, config, folder)
    _check_extras(base_model, variant, config, folder)
    _check_rope(base_model, variant, target, config, folder, where)
    require_whole(folder)
    return Data.of(lambda: weights_digest(folder))


def published_folder(digest: str, folders: Mapping[str, Path]) -> Path:
    """Return the user's folder whose weights have this digest.

    Raises:
      StoreError: if there is none, for example because weights changed after planning.
    """
    for folder in folders.values():
        if weights_digest(folder) == digest:
            return folder
    raise StoreError(
        f"published weights {digest[:12]}",
        "no folder of --model-folder with weights of this digest",
        "the weights that the folder had when the study was planned",
        "restore these weights, or run the study again to plan with the present ones",
    )


def _require_weights(folder: Path) -> None:
    if any(folder.glob("*.safetensors")) and not (folder / _ADAPTER).is_file():
        return
    if (folder / _ADAPTER).is_file():
        raise SpecError(
            folder / _ADAPTER,
            "a LoRA adapter, which does not contain the model's weights",
            "the weights of the whole model",
            "merge the adapter into the base model, and save the model as safetensors",
        )
    raise SpecError(
        folder,
        "no safetensors file",
        "weights as safetensors, because other formats can contain code that runs when loaded",
        "convert them with transformers' save_pretrained, in a sandbox if you distrust them",
    )


def check_sizes(base_model: LanguageModel, config: Mapping[str, Any], folder: Path) -> None:
    """Refuse a folder whose config.json has other sizes than the base model."""
    geometry, shape = base_model.geometry, base_model.shape
    heads = config.get("num_attention_heads")
    found = {
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": geometry.num_heads,
        "num_key_value_heads": geometry.num_kv_heads,
        "head_dim": geometry.head_dim,
    }
    left_out = {"num_key_value_heads": heads, "head_dim": geometry.head_dim}
    for key, expected in found.items():
        given = config.get(key)
        given = left_out.get(key) if given is None else given
        if given != expected:
            raise _other_model(base_model, folder, key, given, repr(expected))
    vocabulary, most = config.get("vocab_size"), shape.vocab_size + MOST_ADDED_TOKENS
    if not (isinstance(vocabulary, int) and shape.vocab_size <= vocabulary <= most):
        expected_range = f"{shape.vocab_size} to {most}"
        raise _other_model(base_model, folder, "vocab_size", vocabulary, expected_range)


def _other_model(
    base_model: LanguageModel, folder: Path, key: str, given: object, expected: str
) -> SpecError:
    return SpecError(
        f"{folder / 'config.json'}: {key}",
        repr(given),
        f"{expected}, the value of base model {base_model.known_as}",
        "pass --model-folder with weights of this base model, or trained from it",
    )


def _check_extras(
    base_model: LanguageModel, variant: MethodEntry, config: Mapping[str, Any], folder: Path
) -> None:
    method = variant.method
    if method.rotary is not None and not (folder / _LEARNED).is_file():
        raise SpecError(
            folder / _LEARNED,
            "no such file",
            f"this file with the additional weights that {method.plugin_name} learned",
            "pass the `model` folder of a checkpoint that lce trained (--model-folder)",
        )
    inserts = method.insertion(base_model.geometry) is not None
    if inserts and not isinstance(config.get(_INSERTED), int):
        raise SpecError(
            f"{folder / 'config.json'}: {_INSERTED}",
            repr(config.get(_INSERTED)),
            f"the id of the token that {method.plugin_name} inserts",
            "look the id up in the tokenizer that was published with the weights, and add the key",
        )


def _check_rope(
    base_model: LanguageModel,
    variant: MethodEntry,
    target: int,
    config: Mapping[str, Any],
    folder: Path,
    where: str,
) -> None:
    file = folder / "config.json"
    stated = stated_parameters(config, f"{file}")
    if stated["rope_type"] not in TYPES:
        raise SpecError(
            f"{file}: rope_type",
            repr(stated["rope_type"]),
            f"one of {', '.join(TYPES)}",
            "remove `rope_type` (or `type`) there if the study's method computes these frequencies",
        )
    geometry = base_model.geometry
    try:
        share = float(stated.get("partial_rotary_factor", geometry.rotary_dim / geometry.head_dim))
        if stated["rope_type"] == "proportional":
            share = 1.0  # whole heads rotate; the key there counts frequencies above 0
        context = int(config.get("max_position_embeddings") or geometry.trained_context)
        is_plain = stated["rope_type"] == PLAIN and _close(stated["rope_theta"], geometry.theta)
        with np.errstate(all="ignore"):  # non-finite values make `stated_table` or a table fail
            said = stated_table(stated, geometry, context, target)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise DataError(
            f"{file}: rope_parameters",
            f"{stated}, which cannot be read ({type(error).__name__}: {error})",
            f"valid values for all keys that rope_type {stated['rope_type']!r} needs",
            "correct or remove rope_parameters",
        ) from error
    if not _close(share, geometry.rotary_dim / geometry.head_dim):
        expected = f"{geometry.rotary_dim / geometry.head_dim:g}"
        raise _other_model(base_model, folder, "partial_rotary_factor", share, expected)
    lengths = ContextLengths(geometry.trained_context, target, target)
    own = request_table(variant.method, geometry, lengths)
    # A file that states the rotary settings of the base model says nothing about the method.
    of_base = RopeTable(geometry.inv_freq(), geometry.attention_factor)
    is_plain |= geometry.scaling is not None and said.agrees(of_base, _AGREEMENT)
    if not is_plain and not said.agrees(own, _AGREEMENT):
        shown = {key: value for key, value in stated.items() if not isinstance(value, list)}
        raise SpecError(
            f"{where}.checkpoint: {file}: rope_parameters",
            f"{shown}, which gives other frequencies than {variant.method.plugin_name} at"
            f" {target} tokens",
            f"the frequencies of {variant.name}, or no rope_parameters",
            "set method, target_context and parameters to those of the weights' training",
        )


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= _AGREEMENT * abs(other)
