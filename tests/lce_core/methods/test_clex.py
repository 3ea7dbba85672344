"""CLEX against a numpy integration of the whole equation by another rule and smaller steps."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from lce_core.contracts.tiny_models import BASES, TARGET, TRAINED, logits, stock, tokens
from lce_core.evidence import LLAMA2_7B, PHI2
from lce_core.extension.continuous_rotary import ContinuousRotary, integrate, sample_row
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from lce_core.models import LanguageModel
from lce_core.rope import ContextLengths, RopeGeometry
from lce_core.training.assembly import build
from tests.support.training_jobs import BASE, job_maker

SMALL = RopeGeometry(16, 16, 2, 2, theta=5e5, trained_context=64)


def clex(**parameters: Any) -> Any:
    return METHODS.parse({"name": "clex", **parameters}, "test")


def lengths_of(geometry: RopeGeometry, request: int = 100) -> ContextLengths:
    trained = geometry.trained_context
    return ContextLengths(trained, 4 * trained, request)


def rotary_of(geometry: RopeGeometry, **parameters: Any) -> ContinuousRotary:
    return ContinuousRotary(clex(**parameters), geometry, lengths_of(geometry))


def teach(rotary: Any, seed: int = 0) -> None:
    """Gives the network weights as if it were trained."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        rotary.down.normal_(0, 0.01, generator=generator)


def taught(base: LanguageModel, **parameters: Any) -> ExtendedModel:
    extended = extend(stock(base), base, clex(**parameters), target=TARGET)
    teach(extended.model.model.rotary_emb)
    return extended


def silu(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(x / (1 + np.exp(-x)))


def reference(
    geometry: RopeGeometry, up: Any, down: Any, scale: int, activation: Any = silu, steps: int = 60
) -> NDArray[np.float64]:
    """Inverse frequencies (pairs,): the classic rule on log theta itself, network and NTK drift."""
    up, down = np.asarray(up, np.float64), np.asarray(down, np.float64)
    dim = geometry.rotary_dim
    even = np.arange(0, dim, 2)
    log_theta = -even / dim * np.log(geometry.theta)

    def change(t: float, x: NDArray[np.float64]) -> Any:
        ntk = log_theta - even / (dim - 2) * np.log(2 * t - 1)
        return activation((x + ntk) @ up) @ down - even / (dim - 2) * 2 / (2 * t - 1)

    x, h = log_theta, 1 / steps
    for step in range((scale - 1) * steps):
        t = 1 + step * h
        a = change(t, x)
        b = change(t + h / 2, x + h / 2 * a)
        c = change(t + h / 2, x + h / 2 * b)
        d = change(t + h, x + h * c)
        x = x + h / 6 * (a + 2 * b + 2 * c + d)
    return np.asarray(np.exp(x))


@pytest.mark.parametrize("geometry", [LLAMA2_7B, PHI2, SMALL])
def test_before_training_every_scale_t_is_ntk_aware_with_scale_2_t_minus_1(geometry):
    rotary = rotary_of(geometry)
    found = rotary.frequencies(16).detach().numpy()
    dim = geometry.rotary_dim
    for t in range(1, 17):
        base = geometry.theta * (2 * t - 1) ** (dim / (dim - 2))
        expected = base ** (-np.arange(0, dim, 2) / dim)
        np.testing.assert_allclose(found[t - 1], expected, rtol=1e-13)
        request = t * geometry.trained_context
        table = clex().rope_table(geometry, lengths_of(geometry, request))
        assert (found[t - 1] == table.inv_freq).all()
        rotary.begin(table, request)
        assert (rotary.table.inv_freq == table.inv_freq).all()


@pytest.mark.parametrize(
    ("geometry", "activation"), [(LLAMA2_7B, "silu"), (PHI2, "tanh"), (SMALL, "silu")]
)
def test_learned_frequencies_equal_an_integration_of_the_whole_equation_by_another_rule(
    geometry, activation
):
    rotary = rotary_of(geometry, activation=activation, expansion=2)
    teach(rotary)
    found = rotary.frequencies(6).detach().numpy()
    assert (found[0] == geometry.inv_freq()).all()
    untrained = clex().untrained(geometry, 6)
    assert np.abs(np.log(found[5] / untrained)).max() > 0.1
    up, down = rotary.up.detach(), rotary.down.detach()
    for scale in (2, 6):
        expected = reference(geometry, up, down, scale, {"silu": silu, "tanh": np.tanh}[activation])
        np.testing.assert_allclose(found[scale - 1], expected, rtol=1e-5)


def test_the_reference_form_is_off_by_a_millionth_with_this_step():
    # Integrating the NTK part too, as the reference does, has a closed form to compare with.
    slopes = torch.arange(0, 128, 2, dtype=torch.float64) / 126
    errors = []
    for steps in (10, 20):
        states = integrate(
            lambda t, x: -slopes * 2 / (2 * t - 1), torch.zeros_like(slopes), 1.0, 7, steps
        )
        errors.append(float((states[-1] + slopes * math.log(15)).abs().max()))
    assert errors[0] == pytest.approx(1.45e-6, rel=0.01)
    assert 15 < errors[0] / errors[1] < 17


def test_gradients_of_the_network_equal_differences_of_the_reference():
    rotary = rotary_of(SMALL)
    teach(rotary)
    rotary.frequencies(4)[-1].log().sum().backward()
    up, down = (np.float64(weights.detach()) for weights in (rotary.up, rotary.down))
    rng = np.random.default_rng(0)
    turns, h = (rng.normal(size=up.shape), rng.normal(size=down.shape)), 1e-5
    sides = [
        np.log(reference(SMALL, up + e * turns[0], down + e * turns[1], 4)).sum() for e in (h, -h)
    ]
    slope = (rotary.up.grad.numpy() * turns[0]).sum() + (rotary.down.grad.numpy() * turns[1]).sum()
    assert slope == pytest.approx((sides[0] - sides[1]) / (2 * h), rel=1e-5)


@given(
    seed=st.integers(0, 2**64 - 1),
    length=st.integers(2, 700),
    trained=st.sampled_from([16, 64, 100]),
    largest=st.integers(1, 32),
)
def test_positions_of_a_row_ascend_through_the_context_of_its_scale(seed, length, trained, largest):
    scale, positions = sample_row(seed, ContextLengths(trained, trained, length), largest)
    dense = max(1.0, length / trained)
    assert 1 <= scale <= largest
    assert positions.shape == (length,)
    assert (np.diff(positions) > 0).all()
    assert positions[0] == 0
    assert positions[-1] == pytest.approx((length * scale - 1) / dense, rel=1e-12)
    assert positions[-1] < trained * scale
    np.testing.assert_allclose(positions * dense, np.rint(positions * dense), atol=1e-6)


def test_scales_and_positions_are_uniform():
    rows = [sample_row(seed, ContextLengths(16, 64, 32), 4) for seed in range(4000)]
    shares = np.bincount([scale for scale, _ in rows])[1:] / len(rows)
    np.testing.assert_allclose(shares, 0.25, atol=0.03)  # 4 standard deviations
    inner = np.concatenate([positions[1:-1] for scale, positions in rows if scale == 4]) * 2
    taken = np.bincount(inner.astype(int), minlength=128)[1:-1] / (inner.size / 30)
    np.testing.assert_allclose(taken, 30 / 126, atol=0.06)


def announced(rotary: ContinuousRotary, seeds: list[int], num_tokens: int) -> Tensor:
    """Cosines (rows, tokens, rotary_dim) of announced training rows."""
    rotary.begin_rows(np.array(seeds, dtype=np.uint64))
    cos, sin = rotary(torch.zeros(len(seeds), num_tokens, 1), torch.arange(num_tokens)[None])
    torch.testing.assert_close(cos**2 + sin**2, torch.ones_like(cos))
    return cos.detach()


def begun(geometry: RopeGeometry, num_tokens: int) -> ContinuousRotary:
    rotary = rotary_of(geometry)
    teach(rotary)
    request = lengths_of(geometry, num_tokens)
    rotary.begin(clex().rope_table(geometry, request), num_tokens)
    return rotary


def test_rows_are_turned_by_the_frequencies_of_their_scale_at_their_positions():
    seeds, rotary = [3, 1, 4, 1, 5, 9], begun(SMALL, 96)
    found = announced(rotary, seeds, 96)
    rows = [sample_row(seed, lengths_of(SMALL, 96), 16) for seed in seeds]
    assert len({scale for scale, _ in rows}) > 3
    for (scale, positions), cos in zip(rows, found, strict=True):
        inv_freq = reference(SMALL, rotary.up.detach(), rotary.down.detach(), scale)
        expected = np.cos(np.outer(positions, np.tile(inv_freq, 2)))
        np.testing.assert_allclose(cos, expected, atol=5e-5)
    assert torch.equal(found[1], found[3])


def test_rows_of_scale_1_alone_still_give_every_weight_a_gradient():
    seeds = [s for s in range(60) if sample_row(s, lengths_of(SMALL, 64), 16)[0] == 1][:2]
    rotary = begun(SMALL, 64)
    rotary.begin_rows(np.array(seeds, dtype=np.uint64))
    cos, _ = rotary(torch.zeros(2, 64, 1), torch.arange(64)[None])
    angles = np.outer(np.arange(64), np.tile(SMALL.inv_freq(), 2))
    np.testing.assert_allclose(cos[0].detach(), np.cos(angles), atol=1e-6)
    cos.sum().backward()
    for parameter in rotary.parameters():
        assert parameter.grad is not None
        assert not parameter.grad.any()


def test_announced_rows_count_in_training_mode_only_and_until_the_next_request():
    rotary = begun(SMALL, 96)
    x, positions = torch.zeros(1, 96, 1), torch.arange(96)[None]
    with torch.no_grad():
        expected = rotary(x, positions)[0]
    torch.testing.assert_close(rotary(x, positions)[0], expected, rtol=0, atol=1e-6)
    assert not torch.equal(announced(rotary, [7], 96), expected)
    rotary.eval()
    with torch.no_grad():
        assert torch.equal(rotary(x, positions)[0], expected)
    rotary.train()
    rotary.begin(rotary.table, 96)
    assert torch.equal(rotary(x, positions)[0].detach(), expected)


def test_new_weights_are_in_force_from_the_next_request_on_and_exact_in_half_precision():
    extended, ids = taught(BASES[0]), tokens(40)
    rotary: Any = extended.model.model.rotary_emb
    with torch.no_grad():
        first = logits(extended, ids)
        teach(rotary, seed=5)
        second = logits(extended, ids)
        teach(rotary, seed=0)
        assert torch.equal(logits(extended, ids), first)
    assert (second - first).abs().max() > 1e-3
    expected = rotary.table.inv_freq.copy()
    extended.model.to(torch.bfloat16)
    extended.begin_request(40)
    assert (rotary.table.inv_freq == expected).all()
    assert {parameter.dtype for parameter in rotary.parameters()} == {torch.float32}
    assert extended.model.lm_head.weight.dtype == torch.bfloat16


@torch.no_grad()
def test_log_scaling_multiplies_logits_beyond_the_trained_context():
    base = BASES[2]
    scaled, plain = taught(base, log_scale=True), taught(base)
    for length, factor in ((12, 1.0), (40, math.log(40) / math.log(TRAINED))):
        ids = tokens(length)
        output = logits(scaled, ids)
        plain.begin_request(length)
        for layer in plain.model.model.layers:
            layer.self_attn.scaling = factor * base.geometry.head_dim**-0.5
        expected = plain.model(ids, use_cache=False).logits
        torch.testing.assert_close(output, expected, rtol=1e-9, atol=1e-9)


def test_scales_follow_the_target_and_the_request():
    method = clex()
    assert method.largest_scale(ContextLengths(4096, 32768, 1)) == 32
    assert method.largest_scale(ContextLengths(4096, 16384, 1)) == 16
    assert method.largest_scale(ContextLengths(2048, 32768, 1)) == 64
    assert clex(max_scale=9).largest_scale(ContextLengths(4096, 32768, 1)) == 9
    given = {1: 1, 4096: 1, 4097: 2, 32768: 8, 65536: 16, 131072: 32, 131073: 32, 10**7: 32}
    found = {length: method.scale_at(ContextLengths(4096, 32768, length)) for length in given}
    assert found == given


def test_the_network_of_a_run_starts_from_the_seed_of_the_study(rows, tmp_path):
    make = job_maker(rows, tmp_path)
    method = clex(max_scale=6).identity()

    def start(seed: int) -> Tensor:
        job = make(method=method, target_context=512, seed=seed)
        model: Any = build(job, BASE, torch.device("cpu")).model
        found: Tensor = model.model.rotary_emb.up.detach()
        return found

    assert torch.equal(start(0), rotary_of(BASE.geometry).up)
    found = start(3)
    bound = 1 / math.sqrt(found.shape[1])  # kaiming's for a = sqrt 5: 1 / sqrt of the inputs
    drawn = torch.empty_like(found)
    drawn.uniform_(-bound, bound, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(found, drawn)
