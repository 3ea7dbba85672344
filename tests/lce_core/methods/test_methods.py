"""Frequencies of methods: parity with transformers, properties, refusals.

Parity draws scales, contexts and bases. What every method keeps is in lce_core/contracts.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from lce_core.errors import SpecError
from lce_core.evidence import LLAMA2_7B, PHI2
from lce_core.methods import METHODS, Method
from lce_core.methods.longrope import PHI3, PHI3_LONG, PHI3_SHORT
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable

EXTENSIONS = (
    "pi", "ntk_aware", "ntk_frozen", "ntk_32k", "ntk_64k", "ntk_by_parts", "yarn", "dynamic_pi",
    "dynamic_ntk_aware", "dynamic_yarn", "rope_base_method_2", "clex", "llama3",
)  # fmt: skip

STATIC = ("pi", "ntk_aware", "ntk_by_parts", "yarn", "rope_base_method_2", "llama3")
"""Extensions with a scale of their own."""

unhurried = settings(max_examples=60)

contexts = st.sampled_from([128, 1024, 2048, 4096, 8192, 65536])
dims = st.integers(4, 64).map(lambda half: 2 * half)
bases = st.sampled_from([500.0, 1e4, 1e5, 5e5, 5e6])
scales = st.floats(1.0, 16.0)


def make(name: str, **parameters: Any) -> Method:
    return METHODS.parse({"name": name, **parameters}, "test")


def shape(dim: int, base: float, context: int) -> RopeGeometry:
    return RopeGeometry(
        head_dim=dim, rotary_dim=dim, num_heads=2, num_kv_heads=2, theta=base,
        trained_context=context,
    )  # fmt: skip


def reference(
    rope_type: str, geometry: RopeGeometry, length: int | None = None, **keys: Any
) -> Any:
    """Inverse frequencies and attention factor as transformers computes them."""
    config = LlamaConfig(
        hidden_size=geometry.head_dim,
        num_attention_heads=1,
        head_dim=geometry.head_dim,
        max_position_embeddings=geometry.trained_context,
        rope_parameters={"rope_type": rope_type, "rope_theta": geometry.theta, **keys},
    )
    inv_freq, attention_factor = ROPE_INIT_FUNCTIONS[rope_type](config, seq_len=length)
    return inv_freq.double().numpy(), attention_factor


@unhurried
@given(dims, bases, contexts, scales)
def test_pi_equals_transformers_linear(dim: int, base: float, context: int, scale: float) -> None:
    geometry = shape(dim, base, context)
    expected, _ = reference("linear", geometry, factor=scale)
    table = make("pi", scale=scale).rope_table(geometry, ContextLengths(context, context, 1))
    np.testing.assert_allclose(table.inv_freq, expected, rtol=1e-5)


@unhurried
@given(dims, bases, contexts, scales, st.floats(0.01, 16))
def test_ntk_frozen_equals_a_fresh_transformers_dynamic_at_each_length(
    dim: int, base: float, context: int, factor: float, times: float
) -> None:
    geometry, length = shape(dim, base, context), math.ceil(times * context)
    expected, _ = reference("dynamic", geometry, length, factor=factor)
    method = make("ntk_frozen", factor=factor)
    table = method.rope_table(geometry, ContextLengths(context, context, length))
    np.testing.assert_allclose(table.inv_freq, expected, rtol=1e-5)


@unhurried
@given(
    dims, bases, contexts, st.integers(1, 16), st.integers(1, 32),
    st.sampled_from(["ntk_32k", "ntk_64k"]),
)  # fmt: skip
def test_tuned_ntk_equals_transformers_dynamic_at_the_target_or_beyond(
    dim: int, base: float, context: int, ratio: int, times: int, name: str
) -> None:
    geometry, target = shape(dim, base, context), ratio * context
    length = max(target, times * context)
    expected, _ = reference("dynamic", geometry, length, factor=ratio / 2)
    lengths = ContextLengths(context, target, times * context)
    table = make(name).rope_table(geometry, lengths)
    np.testing.assert_allclose(table.inv_freq, expected, rtol=1e-5)


@unhurried
@given(dims, bases, contexts, scales, st.booleans(), st.floats(16, 64), st.floats(0.5, 4))
def test_yarn_equals_transformers_yarn(
    dim: int, base: float, context: int, scale: float, truncate: bool, fast: float, slow: float
) -> None:
    geometry = shape(dim, base, context)
    expected, attention_factor = reference(
        "yarn", geometry, factor=scale, original_max_position_embeddings=context,
        truncate=truncate, beta_fast=fast, beta_slow=slow,
    )  # fmt: skip
    method = make("yarn", scale=scale, truncate=truncate, beta_fast=fast, beta_slow=slow)
    table = method.rope_table(geometry, ContextLengths(context, context, 1))
    np.testing.assert_allclose(table.inv_freq, expected, rtol=1e-5)
    assert table.attention_factor == pytest.approx(attention_factor, rel=1e-12)


@unhurried
@given(
    dims, bases, contexts, st.floats(0.01, 16),
    st.sampled_from([("dynamic_pi", "linear"), ("dynamic_yarn", "yarn")]),
)  # fmt: skip
def test_dynamic_methods_equal_a_static_transformers_model_of_just_that_scale(
    dim: int, base: float, context: int, times: float, names: tuple[str, str]
) -> None:
    geometry, length = shape(dim, base, context), math.ceil(times * context)
    keys = {"original_max_position_embeddings": context} if names[1] == "yarn" else {}
    expected, attention_factor = reference(
        names[1], geometry, factor=max(1.0, length / context), **keys
    )
    lengths = ContextLengths(context, 4 * context, length)
    table = make(names[0]).rope_table(geometry, lengths)
    np.testing.assert_allclose(table.inv_freq, expected, rtol=1e-5)
    assert table.attention_factor == pytest.approx(attention_factor, rel=1e-12)


@unhurried
@given(dims, bases, contexts, st.floats(0.01, 16))
def test_dynamic_ntk_equals_a_fresh_transformers_dynamic_with_factor_one(
    dim: int, base: float, context: int, times: float
) -> None:
    geometry, length = shape(dim, base, context), math.ceil(times * context)
    expected, _ = reference("dynamic", geometry, length, factor=1.0)
    lengths = ContextLengths(context, 4 * context, length)
    table = make("dynamic_ntk_aware").rope_table(geometry, lengths)
    np.testing.assert_allclose(table.inv_freq, expected, rtol=1e-5)


@unhurried
@given(dims, bases, contexts, scales, st.floats(0.5, 2), st.floats(2.5, 8))
def test_llama3_equals_transformers_llama3(
    dim: int, base: float, context: int, scale: float, low: float, high: float
) -> None:
    geometry = shape(dim, base, context)
    expected, attention_factor = reference(
        "llama3", geometry, factor=scale, low_freq_factor=low, high_freq_factor=high,
        original_max_position_embeddings=context,
    )  # fmt: skip
    method = make("llama3", scale=scale, beta_slow=low, beta_fast=high)
    table = method.rope_table(geometry, ContextLengths(context, context, 1))
    np.testing.assert_allclose(table.inv_freq, expected, rtol=1e-5)
    assert table.attention_factor == attention_factor == 1


@unhurried
@given(dims, bases, contexts, st.integers(1, 64))
def test_llama3_equals_its_published_rule_in_40_digits(
    dim: int, base: float, context: int, ratio: int
) -> None:
    """The rule tells three cases of wavelengths apart; the method mixes along a ramp."""

    def scaled(pair: int) -> mpf:
        frequency = mpf(base) ** (-mpf(2 * pair) / dim)
        wavelength = 2 * mp.pi / frequency
        if wavelength < mpf(context) / 4:
            return frequency
        if wavelength > context:
            return frequency / ratio
        smooth = (context / wavelength - 1) / 3
        return (1 - smooth) * frequency / ratio + smooth * frequency

    with mp.workdps(40):
        expected = [float(scaled(pair)) for pair in range(dim // 2)]
    geometry, lengths = shape(dim, base, context), ContextLengths(context, ratio * context, 1)
    np.testing.assert_allclose(
        make("llama3").rope_table(geometry, lengths).inv_freq, expected, rtol=1e-12
    )


@unhurried
@given(dims, bases, st.floats(0, 1, exclude_max=True))
def test_p_rope_equals_transformers_proportional(dim: int, base: float, p: float) -> None:
    geometry = shape(dim, base, 4096)
    expected, _ = reference("proportional", geometry, partial_rotary_factor=p)
    table = make("p_rope", p=p).rope_table(geometry, ContextLengths(4096, 4096, 1))
    np.testing.assert_allclose(table.inv_freq, expected, rtol=1e-5)


@unhurried
@given(dims, bases, st.data())
def test_hard_clip_of_n_pairs_is_p_rope_of_all_others(
    dim: int, base: float, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, dim // 2))
    geometry, lengths = shape(dim, base, 4096), ContextLengths(4096, 4096, 1)
    clipped = make("hard_clip", num_clipped=count).rope_table(geometry, lengths).inv_freq
    # The share is raised by less than a pair, so that rounding down to whole pairs is certain.
    share = make("p_rope", p=1 - (2 * count - 0.5) / dim).rope_table(geometry, lengths).inv_freq
    assert (clipped == share).all()
    assert np.count_nonzero(clipped) == dim // 2 - count


@unhurried
@given(dims, bases, st.data())
def test_cope_lies_between_hard_clip_and_no_extension(
    dim: int, base: float, data: st.DataObject
) -> None:
    """Half a cosine is symmetric: the weights of mirrored pairs add up to 1."""
    count = data.draw(st.integers(2, dim // 2))
    geometry, lengths = shape(dim, base, 4096), ContextLengths(4096, 4096, 1)
    own = make("none").rope_table(geometry, lengths).inv_freq
    weights = make("cope", num_clipped=count).rope_table(geometry, lengths).inv_freq / own
    assert (weights[: dim // 2 - count] == 1).all()
    last = weights[dim // 2 - count :]
    np.testing.assert_allclose(last + last[::-1], 1, rtol=1e-12)
    assert (np.diff(last) < 0).all()
    assert (last[0], last[-1]) == (1, 0)


@unhurried
@given(dims, bases, contexts, scales)
def test_resonance_rounds_the_wavelengths_of_transformers_yarn(
    dim: int, base: float, context: int, scale: float
) -> None:
    geometry = shape(dim, base, context)
    yarn, attention_factor = reference(
        "yarn", geometry, factor=scale, original_max_position_embeddings=context
    )
    table = make("resonance", scale=scale).rope_table(geometry, ContextLengths(context, context, 1))
    assert table.attention_factor == pytest.approx(attention_factor, rel=1e-12)
    wavelengths = 2 * np.pi / table.inv_freq
    assert (np.abs(wavelengths - 2 * np.pi / yarn) <= 0.5 + 1e-5 * wavelengths).all()
    if scale > 1:
        np.testing.assert_allclose(wavelengths, np.round(wavelengths), rtol=1e-12)


@unhurried
@given(
    dims, bases, st.floats(1.1, 16), st.sampled_from(["yarn", "pi", "ntk_aware", "none"]),
)  # fmt: skip
def test_resonance_repeats_the_rotation_of_a_pair_after_its_wavelength(
    dim: int, base: float, scale: float, over: str
) -> None:
    method = make("resonance", scale=scale, over=over)
    inv_freq = method.rope_table(shape(dim, base, 4096), ContextLengths(4096, 4096, 1)).inv_freq
    fast = inv_freq[inv_freq > 2 * np.pi / 4096]
    positions = np.arange(64)[:, None]
    later = positions + 5 * np.round(2 * np.pi / fast)
    turned = [np.exp(1j * at * fast) for at in (positions, later)]
    np.testing.assert_allclose(turned[0], turned[1], atol=1e-9)


@unhurried
@given(dims, bases, contexts, st.integers(1, 32), st.integers(1, 64), st.data())
def test_longrope_equals_transformers_longrope_below_and_beyond_the_trained_context(
    dim: int, base: float, context: int, ratio: int, part: int, data: st.DataObject
) -> None:
    factors = st.lists(st.floats(0.5, 64), min_size=dim // 2, max_size=dim // 2)
    short, long = data.draw(factors), data.draw(factors)
    geometry, target = shape(dim, base, context), ratio * context + 1
    length = max(1, target * part // 64)
    # transformers takes the scale of the attention factor from the ratio of the two contexts.
    config = LlamaConfig(
        head_dim=dim, hidden_size=dim, num_attention_heads=1, max_position_embeddings=target,
        rope_parameters={
            "rope_type": "longrope", "rope_theta": base, "short_factor": short,
            "long_factor": long, "original_max_position_embeddings": context,
        },
    )  # fmt: skip
    expected, attention_factor = ROPE_INIT_FUNCTIONS["longrope"](config, seq_len=length)
    method = make("longrope", long_factors=long, short_factors=short)
    table = method.rope_table(geometry, ContextLengths(context, target, length))
    np.testing.assert_allclose(table.inv_freq, expected.double().numpy(), rtol=1e-5)
    assert table.attention_factor == pytest.approx(attention_factor, rel=1e-12)


def test_longrope_with_the_factors_of_phi_3_is_its_stock_layer() -> None:
    config = LlamaConfig(
        head_dim=96, hidden_size=3072, num_attention_heads=32, max_position_embeddings=131072,
        original_max_position_embeddings=4096, rope_theta=10000.0,
        rope_scaling={
            "type": "longrope", "short_factor": list(PHI3_SHORT), "long_factor": list(PHI3_LONG)
        },
    )  # fmt: skip
    method = make("longrope", long_factors=list(PHI3_LONG), short_factors=list(PHI3_SHORT))
    for length in (4096, 4097, 131072):
        theirs = LlamaRotaryEmbedding(config)
        theirs(torch.zeros(1), torch.tensor([[length - 1]]))
        table = method.rope_table(PHI3, ContextLengths(4096, 131072, length))
        np.testing.assert_allclose(table.inv_freq, theirs.inv_freq.double().numpy(), rtol=1e-6)
        assert table.attention_factor == pytest.approx(theirs.attention_scaling, rel=1e-12)


@unhurried
@given(dims, bases, contexts, scales)
def test_ntk_by_parts_is_yarn_by_the_papers_ramp_without_temperature(
    dim: int, base: float, context: int, scale: float
) -> None:
    geometry, lengths = shape(dim, base, context), ContextLengths(context, context, 1)
    by_parts = make("ntk_by_parts", scale=scale).rope_table(geometry, lengths)
    yarn = make("yarn", scale=scale, ramp="paper").rope_table(geometry, lengths)
    assert (by_parts.inv_freq == yarn.inv_freq).all()
    assert by_parts.attention_factor == 1


@pytest.mark.parametrize(
    ("geometry", "target", "formula", "printed"),
    [(LLAMA2_7B, 65536, 121, 57), (PHI2, 65536, 497, 241)],
)
def test_the_two_scales_of_ntk_64k_divide_the_slowest_frequency(
    geometry: RopeGeometry, target: int, formula: int, printed: int
) -> None:
    slowest = {}
    for form in ("formula", "printed"):
        method = make("ntk_64k", scale_form=form)
        for request in (100, target):
            lengths = ContextLengths(geometry.trained_context, target, request)
            table = method.rope_table(geometry, lengths)
            slowest[form, request] = geometry.inv_freq()[-1] / table.inv_freq[-1]
            assert not method.length_dependent(geometry, lengths)
    expected = {("formula", 100): formula, ("printed", 100): printed}
    expected |= {(form, target): scale for (form, _), scale in expected.items()}
    assert slowest == pytest.approx(expected, rel=1e-12)


@unhurried
@given(dims, bases, contexts, scales)
def test_the_two_parts_of_method_2_meet_at_the_split(
    dim: int, base: float, context: int, scale: float
) -> None:
    geometry, split = shape(dim, base, context), max(1, dim // 4)
    method = make("rope_base_method_2", scale=scale, split=split)
    inv_freq = method.rope_table(geometry, ContextLengths(context, context, 1)).inv_freq
    np.testing.assert_allclose(inv_freq[split:], geometry.inv_freq()[split:] / scale, rtol=1e-12)
    steps = inv_freq[:split] / inv_freq[1 : split + 1]
    np.testing.assert_allclose(steps, steps[0], rtol=1e-9)


def grouped(num_heads: int, num_kv_heads: int, head_dim: int = 128) -> RopeGeometry:
    return RopeGeometry(
        head_dim=head_dim, rotary_dim=head_dim, num_heads=num_heads, num_kv_heads=num_kv_heads,
        theta=1e4, trained_context=4096,
    )  # fmt: skip


def bases_of(inv_freq: np.ndarray) -> np.ndarray:
    """Bases in millions that give the rows of a table of head_dim 128."""
    return inv_freq[:, 32] ** -2 / 1e6


def test_query_heads_of_a_key_value_head_share_a_base() -> None:
    lengths = ContextLengths(4096, 131072, 1)
    eight = grouped(32, 8)
    for chosen, expected in (
        ("searched", [1.0, 1.15, 1.3, 1.45, 3.46, 3.88, 4.15, 4.54]),
        ("uniform_ascending", np.linspace(1, 5, 8)),
        ("uniform_descending", np.linspace(5, 1, 8)),
    ):
        method = make("harpe", bases=chosen)
        method.check(eight, lengths)
        bases = bases_of(method.rope_table(eight, lengths).inv_freq)
        np.testing.assert_allclose(bases, np.repeat(expected, 4), rtol=1e-9)


def test_a_list_of_bases_is_assigned_to_heads_in_its_order() -> None:
    method, lengths = make("harpe", bases=[3e6, 3e6, 2e6, 2e6]), ContextLengths(4096, 131072, 1)
    method.check(grouped(4, 2), lengths)
    bases = bases_of(method.rope_table(grouped(4, 2), lengths).inv_freq)
    np.testing.assert_allclose(bases, [3, 3, 2, 2], rtol=1e-12)


@pytest.mark.parametrize(
    ("parameters", "geometry", "match"),
    [
        (
            {"bases": [1e6, 2e6]},
            grouped(4, 4),
            r"harpe\.bases: got 2 bases; .*each of the 4 query heads",
        ),
        (
            {"bases": [1e6, 2e6, 3e6, 3e6]},
            grouped(4, 2),
            r"\[1000000.0, 2000000.0\] for heads 0 to 1",
        ),
        ({"stride": 2_000_000}, grouped(4, 4), "4 bases to choose; expected 1 to 3 bases"),
    ],
)
def test_bases_that_do_not_fit_the_heads_are_refused(
    parameters: dict[str, Any], geometry: RopeGeometry, match: str
) -> None:
    method = make("harpe", **parameters)
    with pytest.raises(SpecError, match=match):
        method.check(geometry, ContextLengths(4096, 131072, 131072))


def test_yarn_clamps_its_ramp_to_dimensions_where_pairs_run_out() -> None:
    # With 65536 tokens of context the upper limit is 65, beyond the last pair, 63.
    geometry = shape(128, 1e4, 65536)
    lengths = ContextLengths(65536, 4 * 65536, 1)
    slowest = make("yarn").rope_table(geometry, lengths).inv_freq[-1]
    low, high = 40, 65
    share = (63 - low) / (high - low)
    expected = geometry.inv_freq()[-1] * (share / 4 + 1 - share)
    assert slowest == pytest.approx(expected, rel=1e-12)


def test_the_ramps_of_the_paper_and_of_the_code_are_those_printed() -> None:
    pairs = [15, 20, 25, 30, 35, 40, 45, 46]
    base = LLAMA2_7B.inv_freq()[pairs]
    printed = {
        "paper": [1, 1, 0.5436, 0.2482, 0.1043, 0.0342, 0.0001, 0],
        "code": [1, 1, 0.8077, 0.6154, 0.4231, 0.2308, 0.0385, 0],
    }
    for ramp, expected in printed.items():
        table = make("yarn", ramp=ramp).rope_table(LLAMA2_7B, ContextLengths(4096, 32768, 1))
        kept = (table.inv_freq[pairs] / base - 1 / 8) / (1 - 1 / 8)
        np.testing.assert_allclose(kept, expected, atol=6e-5)


@unhurried
@given(dims, bases, contexts, st.floats(1.0, 64.0))
def test_ntk_keeps_the_fastest_frequency_and_divides_the_slowest_by_the_scale(
    dim: int, base: float, context: int, scale: float
) -> None:
    geometry = shape(dim, base, context)
    method = make("ntk_aware", scale=scale)
    table = method.rope_table(geometry, ContextLengths(context, context, 1))
    assert table.inv_freq[0] == 1
    assert table.inv_freq[-1] == pytest.approx(geometry.inv_freq()[-1] / scale, rel=1e-12)


@unhurried
@given(dims, bases, contexts, st.sampled_from(EXTENSIONS))
def test_without_extension_every_frequency_method_is_the_base_model(
    dim: int, base: float, context: int, name: str
) -> None:
    geometry = shape(dim, base, context)
    table = make(name).rope_table(geometry, ContextLengths(context, context, context))
    np.testing.assert_allclose(table.inv_freq, geometry.inv_freq(), rtol=1e-14)
    assert table.attention_factor == 1


@pytest.mark.parametrize(
    ("name", "constant_up_to", "grows_at"),
    [
        ("ntk_frozen", 4096, 4097),
        ("dynamic_ntk_aware", 4096, 4097),
        ("dynamic_pi", 4096, 4097),
        ("clex", 4096, 4097),
        ("ntk_32k", 32768, 32769),
        ("ntk_64k", 32768, 32769),
    ],
)
def test_dynamic_methods_depend_on_length_where_they_say_so(
    name: str, constant_up_to: int, grows_at: int
) -> None:
    method = make(name)

    def at(request: int) -> tuple[RopeTable, bool]:
        lengths = ContextLengths(4096, 32768, request)
        table = method.rope_table(LLAMA2_7B, lengths)
        return table, method.length_dependent(LLAMA2_7B, lengths)

    (short, first), (edge, second), (longer, third) = at(100), at(constant_up_to), at(grows_at)
    assert (short.inv_freq == edge.inv_freq).all()
    assert (longer.inv_freq[1:] < edge.inv_freq[1:]).all()
    assert (first, second, third) == (False, False, True)


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        ({"name": "pi", "scale": 0.5}, "pi.scale: got 0.5; expected a scale of at least 1"),
        ({"name": "ntk_aware", "scale": 0.99}, "ntk_aware.scale"),
        ({"name": "yarn", "scale": 0.0}, "yarn.scale"),
        (
            {"name": "longrope", "long_factors": [2.0] * 15},
            r"longrope\.long_factors: got 15 factors; .*16 frequency pairs",
        ),
        ({"name": "cope", "num_clipped": 17}, r"cope\.num_clipped: got 17; .*16 frequency pairs"),
        ({"name": "yarn", "beta_slow": 21.0}, r"yarn\.beta_slow.*20.37 turns"),
        ({"name": "dynamic_yarn", "beta_slow": 21.0}, r"dynamic_yarn\.beta_slow"),
        ({"name": "ntk_by_parts", "beta_slow": 21.0}, r"ntk_by_parts\.beta_slow"),
        ({"name": "ntk_by_parts", "scale": 0.5}, r"ntk_by_parts\.scale"),
        ({"name": "llama3", "scale": 0.5}, r"llama3\.scale"),
        ({"name": "llama3", "beta_slow": 21.0, "beta_fast": 32.0}, r"llama3\.beta_slow"),
        ({"name": "rope_base_method_2", "scale": 0.5}, r"rope_base_method_2\.scale"),
        ({"name": "rope_base_method_2", "split": 16}, "below 16, .*from 1 to 15"),
        ({"name": "lm_infinite", "window": 129}, "trained context of 128 tokens"),
        (
            {"name": "streaming_llm", "window": 125},
            "makes 129 tokens; .*at most 128 tokens",
        ),
        ({"name": "streaming_llm", "num_sinks": 128}, "makes 129 tokens"),
        ({"name": "rerope", "window": 128}, "at most 127, .*training"),
        ({"name": "self_extend", "window": 60, "group": 16}, "multiple of the group.*write 64"),
        ({"name": "self_extend", "window": 128, "group": 16}, "smaller than the trained context"),
    ],
)
def test_parameters_that_do_not_fit_the_model_are_refused(
    entry: dict[str, Any], match: str
) -> None:
    method = METHODS.parse(entry, "test")
    with pytest.raises(SpecError, match=match):
        method.check(shape(32, 1e4, 128), ContextLengths(128, 512, 512))


@pytest.mark.parametrize("name", [*STATIC, "ntk_32k", "ntk_64k"])
def test_a_target_below_the_trained_context_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match=rf"{name}\.scale: got 0.5"):
        make(name).check(shape(32, 1e4, 128), ContextLengths(128, 64, 64))


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        ({"name": "yarn", "ramp": "index"}, r"m\.ramp: got 'index'; expected 'code' or 'paper'"),
        (
            {"name": "yarn", "ramp": "paper", "truncate": False},
            "truncate: false only together with ramp: code",
        ),
        (
            {"name": "yarn", "beta_fast": 1.0},
            "got beta_fast 1.0, beta_slow 1.0; expected beta_fast larger than beta_slow",
        ),
        ({"name": "ntk_frozen", "factor": 0.5}, r"m\.factor: got 0.5"),
        ({"name": "lm_infinite", "num_global": 0}, r"m\.num_global: got 0"),
        ({"name": "self_extend", "group": 2.0}, r"m\.group: got 2.0"),
        ({"name": "streaming_llm", "num_sinks": 0}, r"m\.num_sinks: got 0"),
        ({"name": "rerope", "leak": 0}, r"m\.leak: got 0"),
        (
            {"name": "pi", "factor": 8},
            r"m\.factor: got an unknown key; expected one of the keys of pi: scale",
        ),
        ({"name": "ntk_64k", "scale_form": "paper"}, "'formula' or 'printed'"),
        ({"name": "small_base", "base": 1.0}, r"m\.base: got 1.0"),
        (
            {"name": "harpe", "bases": "random"},
            r"m\.bases\.rule: got 'random'; expected 'searched', 'uniform_ascending'",
        ),
        (
            {"name": "harpe", "bases": [1e6, 0.5]},
            r"m\.bases\.heads\[1\]: got 0.5; .*greater than 1",
        ),
        ({"name": "harpe", "bases": [1e6], "stride": 10000}, "together with a list of bases"),
        ({"name": "harpe", "stride": 0}, r"m\.stride: got 0"),
        ({"name": "dynamic_pi", "scale": 2.0}, r"keys of dynamic_pi: \(none\)"),
        ({"name": "landmark", "block": 1}, r"m\.block: got 1"),
        ({"name": "landmark", "top_k": 0}, r"m\.top_k: got 0"),
        ({"name": "landmark", "train_length": 0}, r"m\.train_length: got 0"),
        ({"name": "longlora", "rank": 0}, r"m\.rank: got 0"),
        ({"name": "longlora", "alpha": 0}, r"m\.alpha: got 0"),
        ({"name": "longlora", "num_groups": 0}, r"m\.num_groups: got 0"),
        ({"name": "longlora", "rank": 8.5}, r"m\.rank: got 8\.5"),
        ({"name": "longlora", "group": 64}, "longlora: scale, num_groups, rank, alpha"),
    ],
)
def test_parameters_outside_their_range_are_refused_on_reading(
    entry: dict[str, Any], match: str
) -> None:
    with pytest.raises(SpecError, match=match):
        METHODS.parse(entry, "m")


def test_self_extend_derives_sizes_from_the_trained_context() -> None:
    sizes = {}
    for context in (4096, 2048, 128, 100, 8, 2):
        geometry = shape(32, 1e4, context)
        method, lengths = make("self_extend"), ContextLengths(context, context, context)
        method.check(geometry, lengths)
        scheme: Any = method.attention(geometry, lengths)
        sizes[context] = (scheme.window, scheme.group)
    assert sizes == {
        4096: (1024, 64), 2048: (1024, 64), 128: (64, 16), 100: (48, 12), 8: (4, 1), 2: (1, 1)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "parameters"), [("self_extend", {}), ("rerope", {"window": 1000, "leak": 3})]
)
def test_the_longest_distance_within_reach_is_just_below_the_trained_context(
    name: str, parameters: dict[str, Any]
) -> None:
    lengths = ContextLengths(4096, 32768, 32768)
    method = make(name, **parameters)
    scheme: Any = method.attention(LLAMA2_7B, lengths)
    reach = method.reach(LLAMA2_7B, lengths)
    assert reach is not None
    assert scheme.distance(reach - 1, 0) == 4095
    assert scheme.distance(reach, 0) > 4095
