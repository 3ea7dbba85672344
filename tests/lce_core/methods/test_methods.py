"""Frequencies of methods: parity with transformers, printed values, refusals."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mp, mpf
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from lce_core.attention.schemes import CacheSinks, GroupedNeighbour, LambdaShaped, Rectified
from lce_core.errors import SpecError
from lce_core.evidence import LLAMA2_7B, PHI2
from lce_core.methods import METHODS, Method
from lce_core.methods.dca import DualChunk
from lce_core.methods.longrope import PHI3, PHI3_LONG, PHI3_SHORT
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable

STATIC = ("pi", "ntk_aware", "ntk_by_parts", "yarn", "rope_base_method_2", "llama3", "longlora")
"""Extensions with a scale of their own."""


def make(name: str, **parameters: Any) -> Method:
    return METHODS.parse({"name": name, **parameters}, "test")


def shape(dim: int, base: float, context: int) -> RopeGeometry:
    return RopeGeometry(dim, dim, 2, 2, base, context)


geometries = st.builds(
    shape,
    st.integers(4, 64).map(lambda half: 2 * half),
    st.sampled_from([500.0, 1e4, 1e5, 5e5, 5e6]),
    st.sampled_from([128, 1024, 2048, 4096, 8192, 65536]),
)
scales = st.floats(1.0, 16.0)


def unextended(geometry: RopeGeometry) -> ContextLengths:
    return ContextLengths(geometry.trained_context, geometry.trained_context, 1)


def same_as_transformers(
    table: RopeTable, rope_type: str, geometry: RopeGeometry, length: int | None = None, **keys: Any
) -> None:
    """Compare frequencies and attention factor; transformers' frequencies are float32."""
    config = LlamaConfig(
        hidden_size=geometry.head_dim,
        num_attention_heads=1,
        head_dim=geometry.head_dim,
        max_position_embeddings=keys.pop("max_position_embeddings", geometry.trained_context),
        rope_parameters={"rope_type": rope_type, "rope_theta": geometry.theta, **keys},
    )
    inv_freq, attention_factor = ROPE_INIT_FUNCTIONS[rope_type](config, seq_len=length)
    np.testing.assert_allclose(table.inv_freq, inv_freq.double().numpy(), rtol=1e-5)
    assert table.attention_factor == pytest.approx(attention_factor, rel=1e-12)


@given(geometries, scales)
def test_pi_equals_transformers_linear(geometry, scale):
    table = make("pi", scale=scale).rope_table(geometry, unextended(geometry))
    same_as_transformers(table, "linear", geometry, factor=scale)


@given(geometries, scales, st.floats(0.01, 16))
def test_ntk_frozen_equals_a_fresh_transformers_dynamic_at_each_length(geometry, factor, times):
    context = geometry.trained_context
    length = math.ceil(times * context)
    method = make("ntk_frozen", factor=factor)
    table = method.rope_table(geometry, ContextLengths(context, context, length))
    same_as_transformers(table, "dynamic", geometry, length, factor=factor)


@given(geometries, st.integers(1, 16), st.integers(1, 32), st.sampled_from(["ntk_32k", "ntk_64k"]))
def test_tuned_ntk_equals_transformers_dynamic_at_the_target_or_beyond(
    geometry, ratio, times, name
):
    context = geometry.trained_context
    lengths = ContextLengths(context, ratio * context, times * context)
    length = max(lengths.target, lengths.request)
    table = make(name).rope_table(geometry, lengths)
    same_as_transformers(table, "dynamic", geometry, length, factor=ratio / 2)


@example(shape(128, 1e4, 65536), 4.0, True, 32.0, 1.0)  # its ramp ends beyond the last pair
@given(geometries, scales, st.booleans(), st.floats(16, 64), st.floats(0.5, 4))
def test_yarn_equals_transformers_yarn(geometry, scale, truncate, fast, slow):
    limits: dict[str, Any] = {"truncate": truncate, "beta_fast": fast, "beta_slow": slow}
    table = make("yarn", scale=scale, **limits).rope_table(geometry, unextended(geometry))
    same_as_transformers(
        table, "yarn", geometry, factor=scale,
        original_max_position_embeddings=geometry.trained_context, **limits,
    )  # fmt: skip


@given(geometries, st.floats(0.01, 16), st.sampled_from(["linear", "yarn"]))
def test_dynamic_methods_equal_a_static_transformers_model_of_just_that_scale(
    geometry, times, rope_type
):
    context = geometry.trained_context
    length = math.ceil(times * context)
    keys = {"original_max_position_embeddings": context} if rope_type == "yarn" else {}
    method = make({"linear": "dynamic_pi", "yarn": "dynamic_yarn"}[rope_type])
    table = method.rope_table(geometry, ContextLengths(context, 4 * context, length))
    factor = max(1.0, length / context)
    same_as_transformers(table, rope_type, geometry, factor=factor, **keys)


@given(geometries, st.floats(0.01, 16))
def test_dynamic_ntk_equals_a_fresh_transformers_dynamic_with_factor_one(geometry, times):
    context = geometry.trained_context
    lengths = ContextLengths(context, 4 * context, math.ceil(times * context))
    table = make("dynamic_ntk_aware").rope_table(geometry, lengths)
    same_as_transformers(table, "dynamic", geometry, lengths.request, factor=1.0)


@given(geometries, scales, st.floats(0.5, 2), st.floats(2.5, 8))
def test_llama3_equals_transformers_llama3(geometry, scale, low, high):
    method = make("llama3", scale=scale, beta_slow=low, beta_fast=high)
    same_as_transformers(
        method.rope_table(geometry, unextended(geometry)), "llama3", geometry, factor=scale,
        low_freq_factor=low, high_freq_factor=high,
        original_max_position_embeddings=geometry.trained_context,
    )  # fmt: skip


@given(geometries, st.integers(1, 64))
def test_llama3_equals_its_published_rule_in_40_digits(geometry, ratio):
    """The rule tells three cases of wavelengths apart; the method mixes along a ramp."""
    context = geometry.trained_context

    def scaled(pair: int) -> mpf:
        frequency = mpf(geometry.theta) ** (-mpf(2 * pair) / geometry.head_dim)
        wavelength = 2 * mp.pi / frequency
        if wavelength < mpf(context) / 4:
            return frequency
        if wavelength > context:
            return frequency / ratio
        smooth = (context / wavelength - 1) / 3
        return (1 - smooth) * frequency / ratio + smooth * frequency

    with mp.workdps(40):
        expected = [float(scaled(pair)) for pair in range(geometry.num_pairs)]
    table = make("llama3").rope_table(geometry, ContextLengths(context, ratio * context, 1))
    np.testing.assert_allclose(table.inv_freq, expected, rtol=1e-12)


@given(geometries, st.floats(0, 1, exclude_max=True))
def test_p_rope_equals_transformers_proportional(geometry, p):
    table = make("p_rope", p=p).rope_table(geometry, unextended(geometry))
    same_as_transformers(table, "proportional", geometry, partial_rotary_factor=p)


@given(geometries, st.data())
def test_hard_clip_of_n_pairs_is_p_rope_of_all_others(geometry, data):
    count = data.draw(st.integers(1, geometry.num_pairs))
    lengths = unextended(geometry)
    clipped = make("hard_clip", num_clipped=count).rope_table(geometry, lengths).inv_freq
    # The share is raised by less than a pair, so that rounding down to whole pairs is certain.
    p = 1 - (2 * count - 0.5) / geometry.head_dim
    assert (clipped == make("p_rope", p=p).rope_table(geometry, lengths).inv_freq).all()
    assert np.count_nonzero(clipped) == geometry.num_pairs - count


@given(geometries, scales)
def test_resonance_rounds_the_wavelengths_of_transformers_yarn(geometry, scale):
    lengths = unextended(geometry)
    yarn = make("yarn", scale=scale).rope_table(geometry, lengths)
    same_as_transformers(
        yarn, "yarn", geometry, factor=scale,
        original_max_position_embeddings=geometry.trained_context,
    )  # fmt: skip
    table = make("resonance", scale=scale).rope_table(geometry, lengths)
    assert table.attention_factor == yarn.attention_factor
    wavelengths = 2 * np.pi / table.inv_freq
    assert (np.abs(wavelengths - 2 * np.pi / yarn.inv_freq) <= 0.5 + 1e-9 * wavelengths).all()
    if scale > 1:
        np.testing.assert_allclose(wavelengths, np.round(wavelengths), rtol=1e-12)


STEPS = {
    "uniform": lambda q, n: 1,
    "progressive": lambda q, n: q,
    "tail_spline": lambda q, n: n * (n + 1) - q * (q - 1),
    "binomial": lambda q, n: q * (n + 1 - q),
}
"""Parts of the scale's logarithm that step q of n on the ramp multiplies into the radix."""


@given(geometries, scales, st.sampled_from(sorted(STEPS)))
def test_mr_rope_multiplies_the_radix_along_the_ramp_in_40_digits(geometry, scale, form):
    with mp.workdps(40):
        expected = radix_along_the_ramp(geometry, scale, form)
    table = make("mr_rope", scale=scale, form=form).rope_table(geometry, unextended(geometry))
    np.testing.assert_allclose(table.inv_freq, np.array(expected, dtype=float), rtol=1e-12)


def radix_along_the_ramp(geometry: RopeGeometry, scale: float, form: str) -> list[mpf]:
    context, pairs = geometry.trained_context, geometry.num_pairs
    plain = [mpf(geometry.theta) ** (-mpf(2 * k) / geometry.rotary_dim) for k in range(pairs)]
    turns = [context * frequency / (2 * mp.pi) for frequency in plain]
    first = max((k for k in range(pairs) if turns[k] > 32), default=0)
    last = next((k for k in range(pairs) if turns[k] < 1), None)
    if last is None:  # the ramp ends beyond the last pair
        ratio = mpf(context) / (2 * mp.pi)
        last = int(mp.ceil(geometry.rotary_dim * mp.log(ratio) / (2 * mp.log(geometry.theta))))
    count = min(last, geometry.rotary_dim - 1) - first
    steps = [STEPS[form](step, count) for step in range(1, count + 1)]
    return [
        frequency * mpf(scale) ** (-mpf(sum(steps[: max(k - first, 0)])) / sum(steps))
        for k, frequency in enumerate(plain)
    ]


@given(geometries, st.integers(1, 32), st.integers(1, 64), st.data())
def test_longrope_equals_transformers_longrope_below_and_beyond_the_trained_context(
    geometry, ratio, part, data
):
    pairs, context = geometry.num_pairs, geometry.trained_context
    factors = st.lists(st.floats(0.5, 64), min_size=pairs, max_size=pairs)
    short, long = data.draw(factors), data.draw(factors)
    target = ratio * context + 1
    lengths = ContextLengths(context, target, max(1, target * part // 64))
    method = make("longrope", long_factors=long, short_factors=short)
    # transformers takes the scale of the attention factor from the ratio of the two contexts.
    same_as_transformers(
        method.rope_table(geometry, lengths), "longrope", geometry, lengths.request,
        max_position_embeddings=target, original_max_position_embeddings=context,
        short_factor=short, long_factor=long,
    )  # fmt: skip


def test_longrope_with_the_factors_of_phi_3_is_its_stock_layer():
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


@pytest.mark.parametrize(
    ("geometry", "formula", "printed"), [(LLAMA2_7B, 121, 57), (PHI2, 497, 241)]
)
def test_the_two_scales_of_ntk_64k_divide_the_slowest_frequency(geometry, formula, printed):
    for form, expected in (("formula", formula), ("printed", printed)):
        method = make("ntk_64k", scale_form=form)
        for request in (100, 65536):
            lengths = ContextLengths(geometry.trained_context, 65536, request)
            table = method.rope_table(geometry, lengths)
            scale = geometry.inv_freq()[-1] / table.inv_freq[-1]
            assert scale == pytest.approx(expected, rel=1e-12)
            assert not method.length_dependent(geometry, lengths)


def test_the_printed_scale_of_ntk_64k_is_one_up_to_twice_the_trained_context():
    lengths = ContextLengths(LLAMA2_7B.trained_context, 6144, 6144)
    table = make("ntk_64k", scale_form="printed").rope_table(LLAMA2_7B, lengths)
    np.testing.assert_allclose(table.inv_freq, LLAMA2_7B.inv_freq(), rtol=1e-12)


@given(geometries, scales)
def test_the_two_parts_of_method_2_meet_at_the_split(geometry, scale):
    split = max(1, geometry.num_pairs // 2)
    method = make("rope_base_method_2", scale=scale, split=split)
    inv_freq = method.rope_table(geometry, unextended(geometry)).inv_freq
    np.testing.assert_allclose(inv_freq[split:], geometry.inv_freq()[split:] / scale, rtol=1e-12)
    steps = inv_freq[:split] / inv_freq[1 : split + 1]
    np.testing.assert_allclose(steps, steps[0], rtol=1e-9)


@pytest.mark.parametrize(
    ("bases", "heads", "expected"),
    [
        ("searched", (32, 8), np.repeat([1.0, 1.15, 1.3, 1.45, 3.46, 3.88, 4.15, 4.54], 4)),
        ("uniform_ascending", (32, 8), np.repeat(np.linspace(1, 5, 8), 4)),
        ("uniform_descending", (32, 8), np.repeat(np.linspace(5, 1, 8), 4)),
        ([3e6, 3e6, 2e6, 2e6], (4, 2), [3, 3, 2, 2]),
    ],
)
def test_query_heads_of_a_key_value_head_share_a_base(bases, heads, expected):
    geometry, lengths = RopeGeometry(128, 128, *heads, 1e4, 4096), ContextLengths(4096, 131072, 1)
    method = make("harpe", bases=bases)
    method.check(geometry, lengths)
    # Pair 32 of 64 has the frequency base ** -0.5.
    found = method.rope_table(geometry, lengths).inv_freq[:, 32] ** -2 / 1e6
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_the_ramps_of_the_paper_and_of_the_code_are_those_printed():
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


@pytest.mark.parametrize(
    ("name", "parameters", "match"),
    [
        ("longrope", {"long_factors": [2.0] * 15}, r"long_factors: got 15 factors; .*16 freq"),
        ("cope", {"num_clipped": 1}, r"cope\.num_clipped: got 1; expected at least 2"),
        ("cope", {"num_clipped": 17}, r"cope\.num_clipped: got 17; .*16 frequency pairs"),
        ("yarn", {"beta_slow": 21.0}, r"yarn\.beta_slow.*20.37 turns"),
        ("llama3", {"beta_slow": 21.0, "beta_fast": 32.0}, r"llama3\.beta_slow"),
        ("rope_base_method_2", {"split": 16}, "below 16, .*from 1 to 15"),
        ("clex", {"max_scale": 3}, r"clex\.max_scale: got 3; expected at least 4, .*write 16"),
        ("clex", {"step": 0.3}, r"clex\.step: got 0\.3; .*write 0\.333"),
        ("lm_infinite", {"window": 129}, "trained context of 128 tokens"),
        ("streaming_llm", {"window": 125}, "makes 129 tokens; .*at most 128 tokens"),
        ("rerope", {"window": 128}, "at most 127, .*training"),
        ("string", {"window": 128}, r"string\.window: got 128; expected at most 127"),
        ("lampe", {"limit": 128.0}, r"lampe\.limit: got 128\.0; expected at most 127"),
        ("dca", {"chunk": 128}, r"dca\.chunk: got 128; expected at most 127"),
        ("dca", {"chunk": 8, "window": 5}, r"dca\.window: got 5; expected at most 4"),
        ("dpe", {"window": 128}, r"dpe\.window: got 128; expected at most 127"),
        ("jet_long", {"window": 128, "form": "freq"}, r"jet_long\.window: got 128; .*at most 127"),
        ("dpe", {"scales": 17 * [2]}, r"dpe\.scales: got 17 scales; .* 16 frequency"),
        ("self_extend", {"window": 60, "group": 16}, "multiple of the group.*write 64"),
        ("self_extend", {"window": 128, "group": 16}, "at most 127, .*training"),
        ("harpe", {"bases": [1e6]}, r"harpe\.bases: got 1 bases; .*each of the 2 query heads"),
        ("harpe", {"stride": 5_000_000}, "2 bases to choose; expected 1 to 1 bases"),
        ("longlora", {"num_groups": 3}, r"longlora\.num_groups: got 3 .*multiple of 6"),
        ("landmark", {"block": 7, "train_length": 16}, r"landmark\.block: got 7; .*is 16"),
        ("landmark", {"block": 4, "top_k": 2, "train_length": 12}, "at least 16: .*4 blocks of"),
        ("landmark", {"block": 4, "train_length": 48}, "got 48; .*divisor of .*, 512 tokens"),
        *((name, {"scale": 0.5}, rf"{name}\.scale: got 0\.5") for name in STATIC),
    ],
)
def test_parameters_that_do_not_fit_the_model_are_refused(name, parameters, match):
    with pytest.raises(SpecError, match=match):
        make(name, **parameters).check(shape(32, 1e4, 128), ContextLengths(128, 512, 512))


def test_heads_that_do_not_fit_a_method_are_refused():
    lengths = ContextLengths(4096, 131072, 131072)
    with pytest.raises(SpecError, match=r"\[1000000.0, 2000000.0\] for heads 0 to 1"):
        make("harpe", bases=[1e6, 2e6, 3e6, 3e6]).check(
            RopeGeometry(128, 128, 4, 2, 1e4, 4096), lengths
        )
    with pytest.raises(SpecError, match="1 attention head; expected at least 2 heads"):
        make("longlora").check(RopeGeometry(8, 8, 1, 1, 1e4, 4096), lengths)
    with pytest.raises(SpecError, match="rotary_dim 2"):
        make("clex").check(RopeGeometry(2, 2, 2, 2, 1e4, 4096), lengths)


@pytest.mark.parametrize(
    ("name", "parameters", "match"),
    [
        ("dynamic_pi", {"scale": 2.0}, r"keys of dynamic_pi: layers"),
        ("yarn", {"ramp": "paper", "truncate": False}, "only together with ramp: code"),
        ("resonance", {"over": "pi", "ramp": "paper"}, "got ramp with over: pi"),
        ("resonance", {"over": "ntk_aware", "beta_fast": 16.0}, "got beta_fast with over: ntk_a"),
        ("resonance", {"over": "none", "scale": 4.0}, "got scale with over: none"),
        ("yarn", {"beta_fast": 1.0}, "got beta_fast 1.0, beta_slow 1.0"),
        ("harpe", {"bases": "random"}, r"m\.bases\.rule: got 'random'; expected 'searched'"),
        ("harpe", {"bases": [1e6, 0.5]}, r"m\.bases\.heads\[1\]: got 0.5; .*greater than 1"),
        ("harpe", {"bases": [1e6], "stride": 10000}, "together with a list of bases"),
        ("yarn", {"layers": [0, 3, 0]}, r"m\.layers: got \[0, 3, 0\]; expected each index once"),
        ("yarn", {"layers": "full"}, r"m\.layers: got 'full'; expected a list .*{every: 4}"),
        ("pi", {"heads": "all"}, r"m\.heads: got 'all'; expected a list .* no key for all"),
        ("longrope", {"long_factors": [2.0], "search": {"seed": 1}}, "together with `long_fac"),
        ("longrope", {"search": {"population": 4, "parents": 5}}, "5 parents in a population of 4"),
    ],
)
def test_parameters_outside_their_range_are_refused_on_reading(name, parameters, match):
    with pytest.raises(SpecError, match=match):
        METHODS.parse({"name": name, **parameters}, "m")


@pytest.mark.parametrize(
    ("name", "parameters"), [("self_extend", {}), ("rerope", {"window": 1000, "leak": 3})]
)
def test_the_longest_distance_within_reach_is_just_below_the_trained_context(name, parameters):
    lengths = ContextLengths(4096, 32768, 32768)
    method = make(name, **parameters)
    scheme: Any = method.attention(LLAMA2_7B, lengths)
    reach = method.reach(LLAMA2_7B, lengths)
    assert scheme.distance(reach - 1, 0) == 4095
    assert scheme.distance(reach, 0) > 4095


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, [(1e6, 8192, 1 / 3), (2e6, 16384, 1 / 3)]),
        ({"shares": [0.5, 0.2, 0.3]}, [(1e6, 8192, 0.5), (2e6, 16384, 0.2)]),
        ({"bases": [3e6, 1e6], "shares": [0.9, 0.1]}, [(3e6, 16384, 0.9)]),
        (
            {"layers": {"every": 2}, "heads": [1], "logit_scale": "log_length"},
            [(1e6, 8192, 1 / 3), (2e6, 16384, 1 / 3)],
        ),
    ],
)
def test_stages_before_the_last_have_their_base_rows_and_share(parameters, expected):
    method = METHODS.parse({"name": "abf_multi_stage", **parameters}, "test")
    stages = method.stages(ContextLengths(4096, 32768, 32768))
    found = [(stage.method.identity(), stage.context, stage.share) for stage in stages]
    choices = {key: value for key, value in parameters.items() if key in Method.model_fields}
    assert found == [
        (make("abf_single_stage", base=base, **choices).identity(), context, pytest.approx(share))
        for base, context, share in expected
    ]


@pytest.mark.parametrize(
    ("name", "parameters", "context", "expected"),
    [
        # LCEG, appendix 9.2: a window of 4096 tokens and 10 global ones.
        ("lm_infinite", {}, 4096, LambdaShaped(window=4096, num_global=10)),
        # Sinks and window are the cache, which has the trained context.
        ("streaming_llm", {}, 4096, CacheSinks(window=4092, num_sinks=4)),
        ("streaming_llm", {"num_sinks": 8, "window": 50}, 128, CacheSinks(50, 8)),
        ("dca", {}, 4096, DualChunk(chunk=3072, window=256)),
        ("self_extend", {}, 128, GroupedNeighbour(64, 16)),
        ("self_extend", {}, 4096, GroupedNeighbour(1024, 64)),
        ("self_extend", {}, 2, GroupedNeighbour(1, 1)),
        ("rerope", {}, 4096, Rectified(window=512)),
        ("rerope", {"leak": 16}, 128, Rectified(window=64, leak=(16,))),
    ],
)
def test_sizes_follow_from_the_trained_context(name, parameters, context, expected):
    geometry = RopeGeometry(32, 32, 2, 2, 1e4, context)
    lengths = ContextLengths(context, 8 * context, 8 * context)
    method = METHODS.parse({"name": name, **parameters}, "test")
    method.check(geometry, lengths)
    assert method.attention(geometry, lengths) == expected
