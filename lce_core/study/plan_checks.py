"""Refuse variants that do not fit a base model, and say why a cell cannot be computed.

Published weights of a variant (its `checkpoint`) must fit the study as well: the sizes in
config.json must equal the base model's. If it states scaled RoPE frequencies, these must equal the
frequencies of the study's method at the target context. Many published checkpoints state no
scaling; their frequencies cannot be checked.

This module does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lce_core.attention.schemes import FullCausal, SlidingWindow
from lce_core.errors import DataError, SpecError, StoreError, UnavailableError
from lce_core.methods import (
    Applied,
    Method,
    as_stock,
    check_local,
    check_schemes,
    layers_of,
    request_table,
)
from lce_core.methods._training_positions import row_positions, why_not_skip
from lce_core.models import (
    ADDED_TOKENS,
    LanguageModel,
    read_config_json,
    require_whole,
    weights_digest,
)
from lce_core.rope import ContextLengths, RopeTable
from lce_core.rope.stated import PLAIN, TYPES, stated_parameters, stated_table
from lce_core.study.spec import BenchmarkEntry, MethodEntry, StudySpec

_AGREEMENT = 1e-6
"""Relative difference of equal RoPE frequencies, for rounding in published bases and factors."""
_ADAPTER = "adapter_config.json"
_LEARNED = "extension.safetensors"
_INSERTED = "landmark_token_id"


def check_variant(
    base_model: LanguageModel, variant: MethodEntry, study: StudySpec, where: str
) -> None:
    trained, target = base_model.geometry.trained_context, study.target_of(variant)
    lengths = ContextLengths(trained, target, request=target)
    try:
        check_method(variant.method, base_model, lengths, pose=variant.train_positions == "pose")
    except SpecError as error:
        place = f"{where} ({base_model.known_as}): {error.where}"
        raise error.within(place) from None
    if variant.tuned:
        sizes = base_model.geometry, lengths, base_model.shape.num_layers
        applied = Applied(variant.method, *sizes)
        _check_positions(base_model, variant, study, applied, where)
        _check_document_masks(base_model, variant, study, applied, where)
        tokens = study.training_of(variant).tokens_per_step
        for stage in variant.method.stages(lengths):
            if tokens % stage.context:
                raise SpecError(
                    f"{where}: training.tokens_per_step",
                    tokens,
                    f"a multiple of {stage.context}, the row length of a stage of {variant.name}",
                    "change one of them",
                )
    source = study.weights_source_of(variant)
    for key, other in (("start_from", study.start_of(variant)), ("weights_of", source)):
        if other and _adds_weights(other, base_model):
            raise SpecError(
                f"{where}.{key}",
                f"{other.name}, whose method adds trained weights to those of the base model",
                "a variant that trains only the weights of the base model",
                f"name another variant, or remove `{key}`",
            )
    if source and _adds_weights(variant, base_model):
        raise SpecError(
            f"{where}.weights_of",
            f"weights of {source.name} for {variant.method.plugin_name}, which needs its own",
            "a method that works with the weights of the base model alone",
            "write `tuned: true` instead, or choose another method",
        )


def check_method(
    method: Method, base_model: LanguageModel, lengths: ContextLengths, *, pose: bool = False
) -> None:
    geometry, num_layers = base_model.geometry, base_model.shape.num_layers
    method.check(geometry, lengths)
    # Tables for all layers may be expensive (`harpe` searches bases), so check only own ones.
    _check_choice(method, base_model, lengths)
    if base_model.local is not None:
        check_local(method, pose=pose)
    check_schemes(Applied(method, geometry, lengths, num_layers), base_model.architecture)


def _check_choice(method: Method, base_model: LanguageModel, lengths: ContextLengths) -> None:
    """Refuse a choice of layers or heads that the model lacks, or that changes nothing."""
    geometry, num_layers = base_model.geometry, base_model.shape.num_layers
    for key, count in (("layers", num_layers), ("heads", geometry.num_kv_heads)):
        named = getattr(method, key)
        if isinstance(named, tuple) and max(named) >= count:
            raise SpecError(
                f"{method.plugin_name}.{key}",
                f"{key[:-1]} {max(named)} of {count}",
                f"{key} from 0 to {count - 1}",
                f"remove the {key} that the model does not have",
            )
    kept = {*geometry.unrotated, *(base_model.local.layers if base_model.local else ())}
    changed = [i for i in range(num_layers) if method.changes(i) and i not in kept]
    if type(method).layer is not Method.layer:
        changed = [i for i in changed if method.layer(i, geometry, lengths)]
    if not changed:
        raise SpecError(
            f"{method.plugin_name}.{'layers' if method.layers else 'layer'}",
            f"no layer that differs among the model's {num_layers}",
            "at least one layer with frequencies or attention of its own",
            "change the parameters that choose the layers",
        )
    if not any(map(method.changes_head, range(geometry.num_kv_heads))):
        raise SpecError(
            f"{method.plugin_name}.heads",
            f"none of the model's {geometry.num_kv_heads} key-value heads",
            "at least one key-value head with frequencies of its own",
            "choose other heads",
        )


def _check_positions(
    base_model: LanguageModel,
    variant: MethodEntry,
    study: StudySpec,
    applied: Applied,
    where: str,
) -> None:
    method, row = variant.method, applied.at(study.train_length_of(variant))
    try:
        own = row_positions(method, row.lengths, seed=0, pose=False) is not None
    except SpecError as error:
        raise error.within(f"{where} ({base_model.known_as}): {error.where}") from None
    pose = variant.train_positions == "pose"
    if not (own or pose):
        return
    why = why_not_skip(applied)
    if pose and method.stages(applied.lengths):
        why = "trains in several runs"
    if pose and own:
        why = "draws positions of its own"
    if why is not None:
        raise SpecError(
            f"{where}.train_positions" if pose else f"{where}: {method.plugin_name}",
            f"{'pose' if pose else 'training_positions'} for {method.plugin_name}, which {why}",
            "a method with one training run that only changes frequencies shared by all heads",
            "leave out `train_positions`, or choose another method"
            if pose
            else "return None from training_positions, or remove the attention scheme",
        )


def _check_document_masks(
    base_model: LanguageModel,
    variant: MethodEntry,
    study: StudySpec,
    applied: Applied,
    where: str,
) -> None:
    """Refuse masks that the variant's training rows or attention cannot have."""
    method, training = variant.method, study.training_of(variant)
    if training.document_masks == "none":
        return
    restart = training.document_masks == "restart"
    layers = layers_of(applied, training=True)
    own = type(method).training_positions is not Method.training_positions
    drawn = own or variant.train_positions == "pose" or method.rotary is not None
    moves = type(base_model).prepare_rows is not LanguageModel.prepare_rows
    for is_so, what, expected in (
        (
            moves and training.packing == "concatenated",
            f"rows in which {base_model.plugin_name} moves tokens",
            "`packing: best_fit`, with which the model prepares each document alone",
        ),
        (
            method.insertion(base_model.geometry) is not None,
            f"{method.plugin_name}, which cuts rows to insert tokens",
            "a method that inserts no tokens",
        ),
        (
            any(not isinstance(one.scheme, FullCausal | SlidingWindow | None) for one in layers),
            f"{method.plugin_name}, whose attention depends on the length of a row",
            "a method that trains with full attention or a sliding window",
        ),
        (
            restart and drawn,
            f"{method.plugin_name}, whose training gives positions to whole rows",
            "`document_masks: run_on`",
        ),
        (
            not (restart or (base_model.local is None and as_stock(applied, training=True))),
            f"{method.plugin_name}, whose attention counts positions itself",
            "`document_masks: restart`",
        ),
    ):
        if is_so:
            raise SpecError(
                f"{where}: training.document_masks ({base_model.known_as})",
                f"{training.document_masks} for {what}",
                f"{expected}, or `document_masks: none`",
                "change `training` of the study or of this entry",
            )


def _adds_weights(variant: MethodEntry, base_model: LanguageModel) -> bool:
    method = variant.method
    return bool(method.rotary or method.insertion(base_model.geometry))


def why_unavailable(
    study: StudySpec,
    base_model: LanguageModel,
    variant: MethodEntry,
    entry: BenchmarkEntry,
    task: str,
    length: int,
) -> str | None:
    """Return why a cell of a known base model cannot be computed; None if it can be."""
    trained = base_model.geometry.trained_context
    lengths = ContextLengths(trained, study.target_of(variant), request=length)
    reach = variant.method.reach(base_model.geometry, lengths)
    if reach is not None and length > reach:
        return f"eval length {length} exceeds the {reach} tokens that {variant.label} supports"
    if reason := entry.benchmark.unavailable(base_model, task, length):
        return reason
    domain = entry.benchmark.held_out_domain(task)
    known, most = study.corpus.domains(), study.evaluation.held_out_tokens
    if domain is not None and domain not in known:
        return (
            f"the corpus {study.corpus.plugin_name} has no domain {domain!r}, only"
            f" {', '.join(known)}: change `domains`"
        )
    needed = entry.benchmark.excerpt_tokens(base_model, task, length)
    if needed > most:
        return (
            f"eval length {length} needs {needed} successive tokens of held-out text;"
            f" evaluation.held_out_tokens is {most}: raise it"
        )
    return None


@dataclass(frozen=True)
class Data:
    """Digest of a plug-in's local input, or why it is missing; both None without local input."""

    digest: str | None
    absent: str | None

    @classmethod
    def of(cls, digest: Callable[[], str | None]) -> Data:
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

    SpecError: the folder contradicts the entry. DataError: config.json or a weights file is
    damaged.
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
    """Return the folder with weights of this digest; StoreError if they changed after planning."""
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
    if (folder / _ADAPTER).is_file():
        raise SpecError(
            folder / _ADAPTER,
            "a LoRA adapter, which does not contain the model's weights",
            "the weights of the whole model",
            "merge the adapter into the base model, and save the model as safetensors",
        )
    if not any(folder.glob("*.safetensors")):
        raise SpecError(
            folder,
            "no safetensors file",
            "weights as safetensors, because other formats can contain code that runs when loaded",
            "convert them with transformers' save_pretrained, in a sandbox if you distrust them",
        )


def check_sizes(base_model: LanguageModel, config: Mapping[str, Any], folder: Path) -> None:
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
    vocabulary, most = config.get("vocab_size"), shape.vocab_size + ADDED_TOKENS
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
