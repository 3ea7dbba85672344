"""Checks that every context-extension method must pass; `lce check` runs them.

The models are tiny, random and in float64, with 4 heads. One model has 2 key-value heads, another
one rotates only part of each head. Their trained context of 16 tokens is extended to 64 tokens.
"""

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise, product
from typing import get_args

import numpy as np
import torch
from pydantic import ValidationError

from lce_core.attention import LayerAttention
from lce_core.contracts import plugins
from lce_core.contracts.dense import AtPositions, as_if_dense, in_pieces, same_as_dense
from lce_core.contracts.plugins import built
from lce_core.contracts.tiny_models import (
    BASES,
    FAR,
    LAYERS,
    TARGET,
    TRAINED,
    VOCABULARY,
    Example,
    Tiny,
    TinyGrouped,
    at,
    behaviour,
    close,
    extended_models,
    fitting,
    keys,
    layers,
    length_in_reach,
    logits,
    name_of,
    rows_of,
    schemes,
    stock,
    tokens,
    with_another_value,
)
from lce_core.errors import SpecError, UnavailableError
from lce_core.extension.extending import extend
from lce_core.methods import METHODS, Applied, Family, Method, check_schemes
from lce_core.methods._training_positions import row_positions
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from lce_core.rope.architectures import Architecture

MethodCheck = Callable[[type[Method], Example], None]


def check_form(plugin: type[Method], example: Example) -> None:
    """Check source, description, identity and family; `exact_attention` must fit the family."""
    plugins.check_source(plugin)
    plugins.check_description(plugin)
    plugins.check_identity(METHODS, plugin, example)
    family, families = getattr(plugin, "family", None), get_args(Family)
    assert family in families, f"family is {family!r}; expected one of {', '.join(families)}"
    assert plugin.exact_attention == (family != "approximate"), (
        f"exact_attention is {plugin.exact_attention} in the family {family!r}; set"
        f" exact_attention = {not plugin.exact_attention}, or choose another family"
    )


def check_evidence(plugin: type[Method], example: Example) -> None:
    """Check the reference values, which must include the attention factor unless that is 1."""
    plugins.check_evidence(METHODS, plugin)
    method = built(plugin, example)
    for base in fitting(method):
        tables = [layer.table for layer in layers(method, base.geometry, at(TARGET))]
        factors = {table.attention_factor for table in tables} - {1}
        stated = [one for one in plugin.evidence if one.of == "attention_factor"]
        assert not factors or stated, f"EVIDENCE has no value for the attention_factor {factors}"


def check_defaults_fit_real_models(plugin: type[Method], example: Example) -> None:
    """Check that the default parameters fit Llama-2, Phi-2 and a toy model."""
    if any(field.is_required() for field in plugin.model_fields.values()):
        return
    method = built(plugin, {})
    for geometry in FAR:
        trained = geometry.trained_context
        lengths = ContextLengths(trained, 8 * trained, 100)
        method.check(geometry, lengths)
        shapes = ((geometry.num_pairs,), (geometry.num_heads, geometry.num_pairs))
        shape = method.rope_table(geometry, lengths).inv_freq.shape
        assert shape in shapes, (
            f"inv_freq has the shape {shape}; expected {shapes[0]}, or {shapes[1]} for frequencies"
            " of each head"
        )
        reach = method.reach(geometry, lengths)
        assert reach is None or reach >= lengths.target, (
            f"the reach of {reach} tokens is below the target of {lengths.target}"
        )


def check_unextended_table(plugin: type[Method], example: Example) -> None:
    """Check that a length-dependent RoPE table equals the base model's at the trained context.

    A table that is the same there and at the target length is not compared.
    """
    method = built(plugin, example)
    for base in fitting(method):
        geometry = base.geometry
        unextended = ContextLengths(TRAINED, TRAINED, TRAINED)
        for extended, alone in zip(
            layers(method, geometry, at(TARGET)), layers(method, geometry, unextended), strict=True
        ):
            if extended.key[:2] != alone.key[:2]:
                np.testing.assert_allclose(alone.table.inv_freq, geometry.inv_freq(), rtol=1e-14)
                assert alone.table.attention_factor == 1, (
                    "the attention factor at the trained context is"
                    f" {alone.table.attention_factor:g}; expected 1, as the table depends on the"
                    " length"
                )


def check_length_dependence(plugin: type[Method], example: Example) -> None:
    """Check that `length_dependent` is True where one more token changes table or attention."""
    method = built(plugin, example)
    for base in fitting(method):
        lengths = [at(length) for length in range(1, 3 * TARGET)]
        found = [keys(method, base.geometry, one) for one in lengths]
        for one, (before, after) in zip(lengths[1:], pairwise(found), strict=True):
            assert before == after or method.length_dependent(base.geometry, one), (
                f"frequencies or attention change at {one.request} tokens, but length_dependent is"
                " False"
            )


def check_pure(plugin: type[Method], example: Example) -> None:
    """Check that frequencies do not depend on the order in which lengths are requested."""
    lengths = (12, 64, 40, 100)
    for base in fitting(built(plugin, example)):
        found: list[dict[int, list[object]]] = []
        for order in (lengths, lengths[::-1], lengths):
            method = built(plugin, example)
            found.append({n: keys(method, base.geometry, at(n)) for n in order})
        wrong = "the RoPE table of a length depends on the order of the requests"
        assert found[0] == found[1] == found[2], wrong


def check_distances(plugin: type[Method], example: Example) -> None:
    """Check that no query sees a later key, and that distances agree with `exact_attention`."""
    method = built(plugin, example)
    for base in fitting(method):
        changed = False
        for scheme in schemes(method, base.geometry):
            for query in range(TARGET):
                found = [scheme.distance(query, key) for key in range(query + 2)]
                assert found[-1] is None, f"the query at {query} sees the key at {query + 1}"
                changed |= found[:-1] != list(range(query, -1, -1))
        assert changed != method.exact_attention, (
            f"exact_attention is {method.exact_attention}, but the distances contradict it"
        )


def check_reach(plugin: type[Method], example: Example) -> None:
    """Check that requests up to the method's reach work, and that longer ones are refused.

    At the reach, no key that a query sees may be farther away than in the trained context. A method
    without a reach must accept four times the target length.
    """
    method = built(plugin, example)
    for base in fitting(method):
        geometry = base.geometry
        reach = method.reach(geometry, at(TARGET))
        extended = extend(stock(base), base, method, target=TARGET)
        if reach is None:
            extended.begin_request(4 * TARGET)
            continue
        assert torch.isfinite(logits(extended, tokens(reach, batch=1))).all(), (
            f"{name_of(base)}: the output at the reach of {reach} tokens is not finite"
        )
        with suppress(UnavailableError):
            extended.begin_request(reach + 1)
            raise AssertionError(f"a request of {reach + 1} tokens is not refused")
        for scheme in schemes(method, geometry, training=False):
            seen = [scheme.distance(reach - 1, key) for key in range(reach)]
            longest = max(distance for distance in seen if distance is not None)
            assert longest < TRAINED, (
                f"with {reach} tokens a key is {longest} tokens away, outside the trained {TRAINED}"
            )


def check_causality(plugin: type[Method], example: Example) -> None:
    """Check that changing a token changes its own output and no earlier one."""
    for base, extended in extended_models(plugin, example):
        ids = tokens(length_in_reach(extended), batch=1)
        before = logits(extended, ids)
        for changed in (1, 15, ids.shape[1] - 1):
            other = ids.clone()
            other[:, changed] = (other[:, changed] + 1) % VOCABULARY
            after = logits(extended, other)
            assert torch.equal(after[:, :changed], before[:, :changed]), (
                f"{name_of(base)}: the token at {changed} changes an earlier output"
            )
            assert not torch.equal(after[:, changed], before[:, changed]), (
                f"{name_of(base)}: the token at {changed} does not change its own output"
            )


def check_attention(plugin: type[Method], example: Example) -> None:
    """Check that attention equals dense attention at the declared distances, cached or not.

    A method without a scheme, or with exact attention, must compute plain rotary attention.
    """
    method = built(plugin, example)
    for base in fitting(method):
        geometry, reach = base.geometry, method.reach(base.geometry, at(TARGET)) or TARGET
        ids = tokens(min(reach, TARGET))
        plain = extend(stock(base), base, method, target=TARGET)
        plain.begin_request(ids.shape[1])
        learned = plain.model.model.rotary_emb.table if method.rotary else None
        lengths, compared = at(ids.shape[1]), None
        for use in ("inference", "training"):
            training = use == "training"
            declared = layers(method, geometry, lengths, training=training)
            if learned is not None:
                declared = tuple(LayerAttention(learned, one.scheme) for one in declared)
            shown = [one.key for one in declared]
            if training and (method.training == "none" or shown == compared):
                continue
            compared = shown
            if not all(one.scheme is None or one.scheme.one_softmax for one in declared):
                assert not method.exact_attention, f"{use}: exact attention is one softmax"
                continue
            models = (stock(base, layers=LAYERS) for _ in range(2))
            found, dense = (
                extend(model, base, one, target=TARGET, training=training)
                for model, one in zip(models, (method, as_if_dense(method, declared)), strict=True)
            )
            expected = logits(dense, ids)
            kinds = " or ".join(sorted({str(one.scheme or "all keys") for one in declared}))
            where = f"{name_of(base)}, {use}: not the dense attention of {kinds}"
            same_as_dense(logits(found, ids), expected, where)
            if not training:
                same_as_dense(in_pieces(found, ids), expected, f"{where}, over a cache")


def check_training_positions(plugin: type[Method], example: Example) -> None:
    """Check that rows start at 0, ascend and stay below the target, and that training uses them.

    A training pass must equal dense attention at the distances between these positions, with the
    table of the target.
    """
    method = built(plugin, example)
    for row, seed in product(rows_of(at(TARGET)), range(100)):
        first, second = (row_positions(method, row, seed, pose=False) for _ in range(2))
        drawn_twice = [None if one is None else one.tolist() for one in (first, second)]
        assert drawn_twice[0] == drawn_twice[1], f"two calls with seed {seed} differ"
    seeds, ids = np.arange(2, dtype=np.uint64), tokens(TRAINED)
    drawn = [row_positions(method, at(TRAINED), int(seed), pose=False) for seed in seeds]
    for base in fitting(method):
        found = extend(stock(base), base, method, target=TARGET, training=True)
        for number, positions in enumerate(drawn):
            if positions is None:
                continue
            found.begin_request(TRAINED)
            found.begin_rows(seeds)
            scheme = AtPositions(tuple(positions.tolist()))
            own = layers(method, base.geometry, at(TARGET), training=True)
            twin = as_if_dense(method, [LayerAttention(one.table, scheme) for one in own])
            dense = extend(stock(base), base, twin, target=TARGET)
            dense.begin_request(TRAINED)
            expected = dense.hidden_states(ids[number : number + 1])
            same_as_dense(found.hidden_states(ids)[number : number + 1], expected, name_of(base))


def check_sees_all(plugin: type[Method], example: Example) -> None:
    """Check that the first token changes every output of one layer with exact attention."""
    method = built(plugin, example)
    if not method.exact_attention:
        return
    for base in fitting(method):
        extended = extend(stock(base, layers=1), base, method, target=TARGET)
        ids = tokens(length_in_reach(extended), batch=1)
        other = ids.clone()
        other[:, 0] = (other[:, 0] + 1) % VOCABULARY
        same_rows = (logits(extended, other) == logits(extended, ids)).all(-1)
        assert not same_rows.any(), f"{name_of(base)}: some output does not see the first token"


def check_cached(plugin: type[Method], example: Example) -> None:
    """Check that processing a text in chunks over a cache gives the same result as one pass."""
    for base, extended in extended_models(plugin, example):
        ids = tokens(length := length_in_reach(extended))
        expected = logits(extended, ids)
        for cuts in ((length // 2,), (7, 8, 9, length - 10), tuple(range(10, length))):
            close(logits(extended, ids, cuts), expected, f"{name_of(base)}, cached at {cuts}")


def check_order(plugin: type[Method], example: Example) -> None:
    """Check that the result of a request does not depend on earlier requests."""
    for base, extended in extended_models(plugin, example):
        short, long = tokens(12), tokens(length_in_reach(extended))
        first = [logits(extended, ids) for ids in (short, long)]
        second = [logits(extended, ids) for ids in (long, short)]
        for one, other in zip(first, reversed(second), strict=True):
            assert torch.equal(one, other), (
                f"{name_of(base)}: the result for {one.shape[1]} tokens depends on the request"
                " before it"
            )


def check_grouped_heads(plugin: type[Method], example: Example) -> None:
    """Check that shared key-value heads give the same result as separate copies of them."""
    method = built(plugin, example)
    grouped, whole = TinyGrouped(), Tiny()
    if grouped.geometry not in [base.geometry for base in fitting(method)]:
        return
    model, repeated = stock(grouped), stock(whole)
    weights = model.state_dict()
    for name in weights:
        if name.endswith(("k_proj.weight", "v_proj.weight")):
            heads = weights[name].unflatten(0, (grouped.geometry.num_kv_heads, -1))
            weights[name] = heads.repeat_interleave(2, dim=0).flatten(0, 1)
    repeated.load_state_dict(weights)

    class Twin(plugin):  # type: ignore[misc, valid-type]
        """The method with the frequencies of `grouped` in every model."""

        def rope_table(self, _: RopeGeometry, lengths: ContextLengths) -> RopeTable:
            table: RopeTable = super().rope_table(grouped.geometry, lengths)
            return table

        def check(self, _: RopeGeometry, lengths: ContextLengths) -> None:
            super().check(grouped.geometry, lengths)

    twin = Twin.model_validate(method.model_dump(exclude_unset=True))
    extended = extend(model, grouped, method, target=TARGET)
    ids = tokens(length_in_reach(extended))
    expected = logits(extended, ids)
    close(logits(extend(repeated, whole, twin, target=TARGET), ids), expected, "grouped heads")


def check_changes_the_output(plugin: type[Method], example: Example) -> None:
    """Check that a method changes the output beyond the trained context (and `none` does not)."""
    for base, extended in extended_models(plugin, example):
        ids = tokens(length_in_reach(extended))
        expected = logits(extend(stock(base), base, METHODS.load("none")(), target=TARGET), ids)
        difference = (logits(extended, ids) - expected).abs().max()
        changed = difference > 1e-3
        if plugin.family == "none":
            assert difference == 0, (
                f"{name_of(base)}: the family 'none' changes the output by up to {difference:.1g}"
            )
        elif base is BASES[0]:
            assert changed, f"{name_of(base)}: the output equals the unextended model's"


def check_gradients(plugin: type[Method], example: Example) -> None:
    """Check that every weight gets a gradient, or that the method raises SpecError in training."""
    method = built(plugin, example)
    for base in fitting(method):
        extended = extend(stock(base).train(), base, method, target=TARGET)
        used = schemes(method, base.geometry, training=False)
        reach = method.reach(base.geometry, at(TARGET)) or TARGET
        with torch.enable_grad():
            if not all(scheme.differentiable for scheme in used):
                try:
                    logits(extended, tokens(8))
                    error = "none"
                except SpecError as refused:
                    error = str(refused)
                words = "expected inference"
                assert words in error, f"got the error {error!r}; expected one with {words!r}"
            else:
                logits(extended, tokens(min(reach, TARGET))).sum().backward()
                lost = [n for n, p in extended.model.named_parameters() if p.grad is None]
                assert not lost, (
                    f"{name_of(base)}: no gradient reaches {len(lost)} weights, such as {lost[0]}"
                )


def check_layers(plugin: type[Method], example: Example) -> None:
    """Check that `layers` leaves all other layers as they are in the base model."""
    try:
        method = built(plugin, {**example, "layers": {"every": 2}})
    except ValidationError:
        return
    for base in fitting(method):
        for training in (False, True):
            plain = LayerAttention(RopeTable(base.geometry.inv_freq()), None)
            whole = layers(built(plugin, example), base.geometry, at(TARGET), training=training)
            found = layers(method, base.geometry, at(TARGET), training=training)
            expected = [(one if place % 2 else plain).key for place, one in enumerate(whole)]
            assert [layer.key for layer in found] == expected, "`layers` changes other layers too"


def check_heads(plugin: type[Method], example: Example) -> None:
    """Check that `heads` changes the frequencies of these key-value heads alone, or is refused."""
    try:
        method = built(plugin, {**example, "heads": {"every": 2}})
    except ValidationError:
        return
    for base in fitting(method):
        geometry = base.geometry
        try:
            check_schemes(Applied(method, geometry, at(TARGET), LAYERS), Architecture())
        except SpecError:
            continue
        shape = geometry.num_kv_heads, -1, geometry.num_pairs
        whole = layers(built(plugin, example), geometry, at(TARGET))
        for one, found in zip(whole, layers(method, geometry, at(TARGET)), strict=True):
            every = np.broadcast_to(one.table.inv_freq, (geometry.num_heads, geometry.num_pairs))
            expected = every.reshape(shape).copy()
            expected[::2] = geometry.inv_freq()
            assert np.array_equal(found.table.inv_freq.reshape(shape), expected), (
                "`heads` changes other heads too, or not all of those that it names"
            )


def check_logit_scale(plugin: type[Method], example: Example) -> None:
    """Check that `logit_scale` follows the number of keys that a query sees, or is refused."""
    scaled = {**example, "logit_scale": "log_length"}
    method = built(plugin, scaled)
    for base in fitting(method):
        try:
            check_schemes(Applied(method, base.geometry, at(TARGET), LAYERS), Architecture())
        except SpecError:
            return
        for scheme in schemes(method, base.geometry):
            for query in range(TARGET):
                seen = sum(scheme.distance(query, key) is not None for key in range(query + 1))
                most = query + 1 if scheme.most_keys is None else scheme.most_keys
                assert seen == min(query + 1, most), (
                    f"the query at {query} sees {seen} keys, but most_keys is {scheme.most_keys}"
                )
    check_attention(plugin, scaled)


def check_parameters(plugin: type[Method], example: Example) -> None:
    """Check that another value of each parameter changes the method's output or its errors."""
    if example is not plugin.examples[0]:
        return  # the other examples are tried together with the first
    for name in plugin.model_fields.keys() - Method.model_fields.keys():
        pairs = [pair for one in plugin.examples for pair in with_another_value(plugin, one, name)]
        assert pairs, f"{name}: no other value is accepted; give one in EXAMPLES"
        assert any(behaviour(one) != behaviour(other) for one, other in pairs), (
            f"{name}: no other value changes the method's output"
        )


CHECKS: tuple[MethodCheck, ...] = tuple(
    value
    for name, value in [*globals().items()]
    if name.startswith("check_") and value.__module__ == __name__
)
