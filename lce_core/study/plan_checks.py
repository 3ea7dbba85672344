"""Refuse variants that do not fit a base model, and say why a cell cannot be computed."""

from __future__ import annotations

from dataclasses import replace

from lce_core.attention.schemes import FullCausal, SlidingWindow
from lce_core.errors import SpecError
from lce_core.methods import (
    Method,
    as_stock,
    check_local,
    check_schemes,
    layers_of,
    own_layers,
)
from lce_core.methods._training_positions import row_positions, why_not_skip
from lce_core.models import LanguageModel
from lce_core.rope import ContextLengths
from lce_core.study.spec import BenchmarkEntry, MethodEntry, StudySpec


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
        _check_positions(base_model, variant, study, lengths, where)
        _check_document_masks(base_model, variant, study, lengths, where)
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
    """Raise SpecError if the method does not fit the base model; `pose` is as in `check_local`."""
    geometry, num_layers = base_model.geometry, base_model.shape.num_layers
    method.check(geometry, lengths)
    # Tables for all layers may be expensive (`harpe` searches bases), so check only own ones.
    _check_choice(method, base_model, lengths)
    if base_model.local is not None:
        check_local(method, pose=pose)
    check_schemes(method, geometry, lengths, num_layers, sinks=base_model.architecture.sinks)


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
    changed = any(method.changes(index) for index in range(num_layers) if index not in kept)
    own = own_layers(method, geometry, lengths, num_layers)
    if not changed or (type(method).layer is not Method.layer and not any(own)):
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
    lengths: ContextLengths,
    where: str,
) -> None:
    """Refuse positions that the variant's training rows cannot have."""
    method, row = variant.method, replace(lengths, request=study.train_length_of(variant))
    try:
        own = row_positions(method, row, seed=0, pose=False) is not None
    except SpecError as error:
        raise error.within(f"{where} ({base_model.known_as}): {error.where}") from None
    pose = variant.train_positions == "pose"
    if not (own or pose):
        return
    why = why_not_skip(method, base_model.geometry, lengths, base_model.shape.num_layers)
    if pose and method.stages(lengths):
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
    lengths: ContextLengths,
    where: str,
) -> None:
    """Refuse masks that the variant's training rows or attention cannot have."""
    method, training = variant.method, study.training_of(variant)
    if training.document_masks == "none":
        return
    restart = training.document_masks == "restart"
    sizes = base_model.geometry, lengths, base_model.shape.num_layers
    layers = layers_of(method, *sizes, training=True)
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
            not (restart or (base_model.local is None and as_stock(method, *sizes, training=True))),
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
