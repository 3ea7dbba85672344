"""The contract of context-extension methods, tried on tiny random models in float64.

Every check takes a method's class and one of its examples. Models have 4 heads (2 key-value heads
in one of them, partial rotary in another) and a trained context of 16, extended to 64 tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from lce_core.attention import AttentionScheme
from lce_core.errors import SpecError, UnavailableError
from lce_core.evidence import LLAMA2_7B, PHI2, OfMethod
from lce_core.extension.extended_model import ExtendedModel, extend
from lce_core.methods import METHODS, Method
from lce_core.models import LanguageModel
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from tests.contracts import plugins
from tests.contracts.plugins import built
from tests.support.extended_models import (
    BASES,
    TARGET,
    TRAINED,
    VOCABULARY,
    Tiny,
    TinyGrouped,
    fits,
    logits,
    stock,
    tokens,
)

Example = Mapping[str, Any]
Check = Callable[[type[Method], Example], None]

Extended = list[tuple[LanguageModel, ExtendedModel]]

FAR = (LLAMA2_7B, PHI2, RopeGeometry(32, 32, 2, 2, 1e4, 128))


def check_form(plugin: type[Method], example: Example) -> None:
    """Source, description, evidence, identity and flags that fit together."""
    plugins.check_source(plugin)
    plugins.check_description(plugin)
    plugins.check_identity(METHODS, plugin, example)
    assert plugin.family in ("none", "frequency", "approximate")
    assert plugin.exact_attention == (plugin.family != "approximate")


def check_evidence(plugin: type[Method], example: Example) -> None:
    """Reference values; the temperature has one wherever there is a temperature."""
    plugins.check_evidence(plugin)
    method = built(plugin, example)
    for base in fitting(method):
        factor = method.rope_table(base.geometry, at(TARGET)).attention_factor
        told = [
            one
            for one in plugin.evidence
            if isinstance(one.asked, OfMethod) and one.asked.quantity == "attention_factor"
        ]
        assert factor == 1 or told, "EVIDENCE says nothing about attention_factor"


def check_defaults_fit_real_models(plugin: type[Method], example: Example) -> None:
    """Without parameters, where that is possible, a method fits Llama-2, Phi-2 and a toy."""
    if any(field.is_required() for field in plugin.model_fields.values()):
        return
    method = built(plugin, {})
    for geometry in FAR:
        trained = geometry.trained_context
        lengths = ContextLengths(trained, 8 * trained, 100)
        method.check(geometry, lengths)
        shapes = ((geometry.num_pairs,), (geometry.num_heads, geometry.num_pairs))
        assert method.rope_table(geometry, lengths).inv_freq.shape in shapes
        reach = method.reach(geometry, lengths)
        assert reach is None or reach >= lengths.target, f"reach {reach} is below the target"


def check_unextended_table(plugin: type[Method], example: Example) -> None:
    """A table that follows the lengths is the base model's where nothing is extended."""
    method = built(plugin, example)
    for base in fitting(method):
        geometry = base.geometry
        extended = method.rope_table(geometry, at(TARGET))
        alone = method.rope_table(geometry, ContextLengths(TRAINED, TRAINED, TRAINED))
        if not same(extended, alone):
            np.testing.assert_allclose(alone.inv_freq, geometry.inv_freq(), rtol=1e-14)
            assert alone.attention_factor == 1


def check_length_dependence(plugin: type[Method], example: Example) -> None:
    """Where a token more changes the table, the method says that it depends on the length."""
    method = built(plugin, example)
    for base in fitting(method):
        tables = [method.rope_table(base.geometry, at(length)) for length in range(1, 3 * TARGET)]
        for length, (shorter, longer) in enumerate(pairwise(tables), start=2):
            assert same(shorter, longer) or method.length_dependent(base.geometry, at(length)), (
                f"the table changes at {length} tokens, and length_dependent says it does not"
            )


def check_pure(plugin: type[Method], example: Example) -> None:
    """Tables do not depend on which were asked for before."""
    lengths = (12, 64, 40, 100)
    for base in fitting(built(plugin, example)):
        tables: list[dict[int, RopeTable]] = []
        for order in (lengths, lengths[::-1], lengths):
            method = built(plugin, example)
            tables.append({n: method.rope_table(base.geometry, at(n)) for n in order})
        for other in tables[1:]:
            assert all(same(tables[0][n], other[n]) for n in lengths), "order changes the table"


def check_distances(plugin: type[Method], example: Example) -> None:
    """`exact_attention` is what the distances say; no distance looks ahead."""
    method = built(plugin, example)
    for base in fitting(method):
        changed = False
        for scheme in schemes(method, base.geometry):
            for query in range(TARGET):
                found = [scheme.distance(query, key) for key in range(query + 2)]
                assert found[-1] is None, f"the query at {query} sees the key at {query + 1}"
                changed |= found[:-1] != list(range(query, -1, -1))
        assert changed != method.exact_attention, (
            f"exact_attention is {method.exact_attention}, and distances say otherwise"
        )


def check_reach(plugin: type[Method], example: Example) -> None:
    """A request at the reach works, one beyond it does not; no distance exceeds the trained."""
    method = built(plugin, example)
    for base in fitting(method):
        geometry = base.geometry
        reach = method.reach(geometry, at(TARGET))
        extended = extend(stock(base), base, method, target=TARGET)
        if reach is None:
            extended.begin_request(4 * TARGET)
            continue
        assert torch.isfinite(logits(extended, tokens(reach, batch=1))).all()
        try:
            extended.begin_request(reach + 1)
        except UnavailableError:
            pass
        else:
            raise AssertionError(f"a request of {reach + 1} tokens is not refused")
        for scheme in schemes(method, geometry, training=False):
            seen = [scheme.distance(reach - 1, key) for key in range(reach)]
            longest = max(distance for distance in seen if distance is not None)
            assert longest < TRAINED, f"at reach {reach} a key is {longest} away, of {TRAINED}"


def check_causality(plugin: type[Method], example: Example) -> None:
    """Changing a token changes no earlier output, and its own."""
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
            assert not torch.equal(after[:, changed], before[:, changed])


def check_sees_all(plugin: type[Method], example: Example) -> None:
    """In one layer of exact attention, the first token changes every later output."""
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
    """Chunks over a cache give what one pass gives."""
    for base, extended in extended_models(plugin, example):
        ids = tokens(length := length_in_reach(extended))
        expected = logits(extended, ids)
        for cuts in ((length // 2,), (7, 8, 9, length - 10), tuple(range(10, length))):
            close(logits(extended, ids, cuts), expected, f"{name_of(base)}, cached at {cuts}")


def check_order(plugin: type[Method], example: Example) -> None:
    """Results do not depend on the order of requests."""
    for base, extended in extended_models(plugin, example):
        short, long = tokens(12), tokens(length_in_reach(extended))
        first = [logits(extended, ids) for ids in (short, long)]
        second = [logits(extended, ids) for ids in (long, short)]
        assert torch.equal(first[0], second[1]), f"{name_of(base)}: order changes the short one"
        assert torch.equal(first[1], second[0]), f"{name_of(base)}: order changes the long one"


def check_grouped_heads(plugin: type[Method], example: Example) -> None:
    """Key-value heads that query heads share equal the same heads written out."""
    method = built(plugin, example)
    grouped, whole = TinyGrouped(), Tiny()
    if grouped.geometry not in [base.geometry for base in fitting(method)]:
        return
    model, repeated = stock(grouped), stock(whole)
    repeated.load_state_dict({name: _repeated(name, w) for name, w in model.state_dict().items()})
    extended = extend(model, grouped, method, target=TARGET)
    ids = tokens(length_in_reach(extended))
    expected = logits(extended, ids)
    twin = _as_if_grouped(method, grouped.geometry)
    close(logits(extend(repeated, whole, twin, target=TARGET), ids), expected, "grouped heads")


def check_changes_the_output(plugin: type[Method], example: Example) -> None:
    """Beyond the trained context an extension changes the output; `none` does not."""
    for base, extended in extended_models(plugin, example):
        ids = tokens(length_in_reach(extended))
        expected = logits(extend(stock(base), base, METHODS.load("none")(), target=TARGET), ids)
        difference = (logits(extended, ids) - expected).abs().max()
        changed = difference > 1e-3
        if plugin.family == "none":
            assert difference == 0
        elif base is BASES[0]:
            assert changed, f"{name_of(base)}: the output is the base model's"


def check_gradients(plugin: type[Method], example: Example) -> None:
    """Every weight learns from rows of the target length, or a scheme refuses to record."""
    method = built(plugin, example)
    for base in fitting(method):
        extended = extend(stock(base).train(), base, method, target=TARGET)
        scheme = method.attention(base.geometry, at(TARGET))
        reach = method.reach(base.geometry, at(TARGET)) or TARGET
        with torch.enable_grad():
            if scheme is not None and not scheme.differentiable:
                refused(lambda: logits(extended, tokens(8)), "expected inference")  # noqa: B023
            else:
                logits(extended, tokens(min(reach, TARGET))).sum().backward()
                lost = [n for n, p in extended.model.named_parameters() if p.grad is None]
                assert not lost, f"{name_of(base)}: no gradient reaches {lost}"


def check_parameters(plugin: type[Method], example: Example) -> None:
    """Every parameter changes what the method does with some example, or is refused."""
    if example is not plugin.examples[0]:
        return  # the others are tried along with the first
    for name in plugin.model_fields:
        pairs = [pair for one in plugin.examples for pair in _changed(plugin, one, name)]
        assert pairs, f"{name}: no second value fits; give one in EXAMPLES"
        assert any(behaviour(one) != behaviour(other) for one, other in pairs), (
            f"{name} changes nothing"
        )


CHECKS: tuple[Check, ...] = (
    check_form,
    check_evidence,
    check_defaults_fit_real_models,
    check_unextended_table,
    check_length_dependence,
    check_pure,
    check_distances,
    check_reach,
    check_causality,
    check_sees_all,
    check_cached,
    check_order,
    check_grouped_heads,
    check_changes_the_output,
    check_gradients,
    check_parameters,
)


def at(request: int) -> ContextLengths:
    """Lengths of a request to a tiny model."""
    return ContextLengths(TRAINED, TARGET, request)


def fitting(method: Method) -> list[LanguageModel]:
    """Tiny models that take the method's parameters; the plain Llama has to."""
    found = [base for base in BASES if fits(method, base)]
    if BASES[0] not in found:
        method.check(BASES[0].geometry, at(TARGET))
    return found


def extended_models(plugin: type[Method], example: Example) -> Extended:
    """Each tiny model with the method on it."""
    method = built(plugin, example)
    return [(base, extend(stock(base), base, method, target=TARGET)) for base in fitting(method)]


def length_in_reach(extended: ExtendedModel) -> int:
    """40 tokens, or as many as the method reaches: more than the trained context."""
    reach = extended.method.reach(extended.geometry, at(TARGET))
    length = 40 if reach is None else min(40, reach)
    assert length > TRAINED, f"a reach of {reach} tokens extends nothing"
    return length


def schemes(method: Method, geometry: RopeGeometry, *, training: bool = True) -> list[Any]:
    """Attention schemes of a method in use and in training, without stock attention."""
    found: list[AttentionScheme | None] = [method.attention(geometry, at(TARGET))]
    if training:
        found.append(method.training_attention(geometry, at(TARGET)))
    return [scheme for scheme in found if scheme is not None]


def same(one: RopeTable, other: RopeTable) -> bool:
    """Whether two tables are equal to the bit."""
    equal = np.array_equal(one.inv_freq, other.inv_freq)
    return equal and one.attention_factor == other.attention_factor


def close(found: torch.Tensor, expected: torch.Tensor, where: str) -> None:
    """Raises AssertionError unless float64 results agree up to rounding."""
    worst = (found - expected).abs().max().item()
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-9), f"{where}: off by {worst:.3g}"


def refused(call: Callable[[], Any], words: str) -> None:
    """Raises AssertionError unless `call` is refused in these words."""
    said = "nothing"
    try:
        call()
    except SpecError as error:
        said = str(error)
    assert words in said, f"not refused as {words!r}, but said {said}"


def name_of(base: LanguageModel) -> str:
    """Which tiny model it is."""
    return type(base).__name__


def perturbed(value: Any, plugin: type[Method], name: str) -> list[Any]:
    """Other values of the same kind; for None what numbers a study may give."""
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
            found += [[1.25 * one for one in value], [*value[::-1]]]
        case None:
            found += [2, 2.0, 4, 4.0, 0.5, 8]
    return found


def behaviour(method: Method) -> list[Any]:
    """All that a method says, at small and real sizes."""
    said: list[Any] = [method.lora()]
    for geometry in (*(base.geometry for base in BASES), *FAR):
        trained = geometry.trained_context
        for request in (trained, 4 * trained, 64 * trained):
            lengths = ContextLengths(trained, 4 * trained, request)
            try:
                method.check(geometry, lengths)
            except SpecError as error:
                said.append(str(error))
                continue
            said += _said(method, geometry, lengths)
    return said


def _said(method: Method, geometry: RopeGeometry, lengths: ContextLengths) -> list[Any]:
    table = method.rope_table(geometry, lengths)
    said: list[Any] = [table.inv_freq.tolist(), table.attention_factor]
    said += [method.attention(geometry, lengths), method.insertion(geometry)]
    said += [method.training_attention(geometry, lengths), method.reach(geometry, lengths)]
    said += [method.stages(lengths), method.length_dependent(geometry, lengths)]
    if method.rotary is not None and geometry in [base.geometry for base in BASES]:
        said += _learned(method, geometry, lengths)
    return said


def _learned(method: Method, geometry: RopeGeometry, lengths: ContextLengths) -> list[Any]:
    """Frequencies of a rotary module whose parameters are not at their start."""
    base = next(base for base in BASES if base.geometry == geometry)
    extended = extend(stock(base), base, method, target=lengths.target)
    weights = extended.model.model.rotary_emb.parameters()
    generator = torch.Generator().manual_seed(3)
    for weight in weights:
        weight.copy_(0.1 * torch.randn(weight.shape, generator=generator))
    extended.begin_request(lengths.request)
    return [extended.model.model.rotary_emb.table.inv_freq.tolist()]


def _changed(plugin: type[Method], example: Example, name: str) -> list[tuple[Method, Method]]:
    """The method of an example, beside those that differ in one parameter."""
    method = built(plugin, example)
    values = [one[name] for one in plugin.examples if name in one]
    values = values or perturbed(getattr(method, name), plugin, name)
    if not plugin.model_fields[name].is_required():
        values.append(plugin.model_fields[name].get_default())
    found = []
    for value in values:
        try:
            other = built(plugin, {**example, name: value})
        except ValueError:
            continue
        if other != method:
            found.append((method, other))
    return found


def _repeated(name: str, weight: torch.Tensor) -> torch.Tensor:
    if not name.endswith(("k_proj.weight", "v_proj.weight")):
        return weight
    heads = weight.unflatten(0, (TinyGrouped.geometry.num_kv_heads, -1))
    return heads.repeat_interleave(2, dim=0).flatten(0, 1)


def _as_if_grouped(method: Method, geometry: RopeGeometry) -> Method:
    """The method with the frequencies that it gives the grouped model."""
    kind = type(method)

    class Twin(kind):  # type: ignore[misc, valid-type]
        def rope_table(self, _: RopeGeometry, lengths: ContextLengths) -> RopeTable:
            table: RopeTable = super().rope_table(geometry, lengths)
            return table

        def check(self, _: RopeGeometry, lengths: ContextLengths) -> None:
            super().check(geometry, lengths)

    return Twin.model_validate(method.model_dump(exclude_unset=True))
