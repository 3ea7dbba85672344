"""In which precision queries, keys and positions are rotated: float32, stock, and LCEG's bf16.

The other side is rotation in float64 by complex numbers, stock transformers, or what a simulation
of LCEG's training software once gave.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import DynamicCache
from transformers.models.llama import modeling_llama

from lce_core.attention.rotary import RequestRotary, keep_precision
from lce_core.attention.rotation import Rotation
from lce_core.contracts.tiny_models import BASES, LENGTHS, TARGET, fits, stock, tokens
from lce_core.evidence import LLAMA2_7B
from lce_core.extension.extending import extend
from lce_core.methods import METHODS, Applied, as_stock
from lce_core.rope import ContextLengths, RopeTable
from lce_core.training.run import run
from tests.support.extended_models import method
from tests.support.training_jobs import job_maker, losses, packed_rows, silent

ROTATED_BY_LAYERS = [
    name
    for name in METHODS.names()
    if as_stock(Applied(method(name), BASES[0].geometry, LENGTHS, 2))
]
"""Methods whose rotation transformers' own layers carry out."""


def turned(states: torch.Tensor, inv_freq: np.ndarray) -> torch.Tensor:
    """States (batch, heads, tokens, dim) rotated to positions 0.., in float64."""
    pairs = inv_freq.shape[-1]
    numbers = torch.complex(states[..., :pairs].double(), states[..., pairs : 2 * pairs].double())
    angles = torch.from_numpy(np.outer(np.arange(states.shape[2]), inv_freq))
    numbers = numbers * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((numbers.real, numbers.imag, states[..., 2 * pairs :].double()), dim=-1)


def score_error(*, stock_precision: bool) -> float:
    """Root mean square error of bf16 states' scores, per head dimension's root, up to 4096."""
    keep_precision("llama")
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, 1, 4096, 128, generator=generator).bfloat16()
    rotary = RequestRotary(128, identity=False)
    rotary.stock_precision = stock_precision
    table = RopeTable(LLAMA2_7B.inv_freq())
    rotary.begin(table, 4096)
    cos, sin = rotary(query, torch.arange(4096)[None])
    found = modeling_llama.apply_rotary_pos_emb(query, key, cos, sin)
    assert {states.dtype for states in found} == {torch.bfloat16}
    exact = [turned(states, table.inv_freq) for states in (query, key)]
    rows = torch.arange(0, 4096, 16)
    ours, theirs = (
        q[0, 0, rows].double() @ k[0, 0].double().T / 128**0.5 for q, k in (found, exact)
    )
    return float((ours - theirs).square().mean().sqrt())


def test_float32_rotation_has_less_error_than_stock_cosines() -> None:
    # Once found for both paths: 2.4e-3 and 3.9e-3.
    assert score_error(stock_precision=False) == pytest.approx(2.4e-3, rel=0.05)
    assert score_error(stock_precision=True) == pytest.approx(3.9e-3, rel=0.05)


@pytest.mark.parametrize("name", ROTATED_BY_LAYERS)
def test_keys_of_every_method_are_rotated_exactly_and_rounded_once(name: str) -> None:
    # Phi rotates only some elements of a head; the keys of Llama do not depend on their groups.
    base = next(base for base in (BASES[2], BASES[0]) if fits(method(name), base))
    chosen, ids = method(name), tokens(40)
    plain, cache = DynamicCache(), DynamicCache()
    unrotated: Any = stock(base).bfloat16().model
    unrotated.rotary_emb = RequestRotary(base.geometry.rotary_dim, identity=True)
    unrotated.rotary_emb.begin(RopeTable(base.geometry.inv_freq()), 40)
    unrotated(ids, past_key_values=plain, use_cache=True)
    extended = extend(stock(base).bfloat16(), base, chosen, target=TARGET)
    extended.begin_request(40)
    for part in ids.split((13, 1, 26), dim=1):
        extended.hidden_states(part, cache)
    lengths = ContextLengths(LENGTHS.trained, TARGET, 40)
    inv_freq = chosen.rope_table(base.geometry, lengths).inv_freq
    expected = turned(plain.layers[0].keys, inv_freq).bfloat16()
    keys = cache.layers[0].keys
    assert keys.dtype == torch.bfloat16
    # Products of other shapes round a few projections differently.
    assert float((keys == expected).double().mean()) > 0.99


def test_a_float32_model_keeps_the_arithmetic_of_transformers():
    generator = torch.Generator().manual_seed(1)
    query, key = torch.randn(2, 1, 2, 30, 8, generator=generator)
    rotary = RequestRotary(8, identity=False)
    rotary.begin(RopeTable(BASES[0].geometry.inv_freq()), 30)
    cos, sin = rotary(query, torch.arange(30)[None])
    found = modeling_llama.apply_rotary_pos_emb(query, key, cos, sin)
    for states, output in zip((query, key), found, strict=True):
        half = torch.cat((-states[..., 4:], states[..., :4]), dim=-1)
        assert torch.equal(output, states * cos[:, None] + half * sin[:, None])


# Training on positions rounded to bf16


def off_by_a_tenth(inv_freq: np.ndarray, kind: Any) -> tuple[float, float]:
    """Share of cosines of 32768 positions that are off by more than 0.1; of the last half alone."""
    positions = np.arange(32768)
    rotary = RequestRotary(2 * len(inv_freq), identity=False)
    rotary.begin(RopeTable(inv_freq, positions=kind), 32768)
    cos, _ = rotary(torch.zeros(1), torch.from_numpy(positions)[None])
    exact = np.cos(np.outer(positions, inv_freq))
    off = np.abs(cos[0, :, : len(inv_freq)].numpy() - exact) > 0.1
    return off.mean(), off[16384:].mean()


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("pi", "bf16_angles", (0.29, 0.35)),
        ("yarn", "bf16", (0.40, 0.45)),
        ("pi", "exact", (0.0, 0.0)),
    ],
)
def test_rounded_positions_spoil_as_many_cosines_as_in_lcegs_software(name, kind, expected):
    lengths = ContextLengths(4096, 32768, 32768)
    table = METHODS.parse({"name": name}, "test").rope_table(LLAMA2_7B, lengths)
    assert off_by_a_tenth(table.inv_freq, kind) == pytest.approx(expected, abs=0.005)


def test_32768_positions_become_1153():
    rotary = RequestRotary(2, identity=False)
    rotary.begin(RopeTable(np.array([1e-5]), positions="bf16"), 32768)
    cos, sin = rotary(torch.zeros(1), torch.arange(32768)[None])
    assert len(torch.unique(torch.stack((cos[0, :, 0], sin[0, :, 0]), -1), dim=0)) == 1153


def test_attention_that_rotates_by_itself_takes_rounded_positions_too():
    table = RopeTable(LLAMA2_7B.inv_freq(), positions="bf16_angles")
    rotary = RequestRotary(128, identity=False)
    rotary.begin(table, 5000)
    cos, _ = rotary(torch.zeros(1), torch.arange(5000)[None])
    states = torch.cat((torch.ones(64), torch.zeros(64))).expand(1, 1, 5000, 128)
    rotated = Rotation(table, states)(states, slice(5000))
    assert torch.equal(rotated[0, 0, :, :64], cos[0, :, :64])
    exact = Rotation(replace(table, positions="exact"), states)(states, slice(5000))
    assert (rotated - exact).abs().max() > 0.5


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("pi", ["exact", "bf16", "bf16_angles", "pose"]),
        ("longlora", ["exact", "bf16_angles"]),
    ],
)
def test_a_run_on_other_positions_is_another_run(name, kinds, tmp_path):
    make = job_maker(packed_rows(tmp_path, row_length=384), tmp_path)
    training = {"tokens_per_step": 768}
    fields: dict[str, Any] = {
        "method": METHODS.parse({"name": name}, "test").identity(),
        "target_context": 512,
        "row_length": 384,  # bf16 has all integers up to 256
        "num_steps": 1,
    }
    jobs = [make(training, **fields, train_positions=kind) for kind in kinds]
    with torch.enable_grad():
        for job in jobs:
            run(job, silent)
    assert len({tuple(losses(job)) for job in jobs}) == len(kinds)
    assert len({job.identity() for job in jobs}) == len(kinds)
    assert make(training, **fields).identity() == jobs[0].identity()
