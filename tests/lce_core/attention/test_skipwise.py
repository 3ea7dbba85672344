"""Positions of PoSE: against all draws of the reference, and a model against stock transformers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lce_core.attention.skipwise import skipped_positions
from lce_core.contracts.tiny_models import BASES, stock, tokens
from lce_core.extension.extending import extend
from tests.support.extended_models import method


@given(st.integers(0, 2**63), st.integers(1, 64), st.integers(0, 300))
def test_a_row_skips_once_and_stays_below_the_target(seed: int, length: int, more: int) -> None:
    positions = skipped_positions(seed, length, length + more)
    steps = np.diff(positions)
    assert positions[0] == 0
    assert positions[-1] < length + more
    assert (steps >= 1).all()
    assert (steps > 1).sum() <= 1
    if (steps > 1).any():
        assert int(np.argmax(steps > 1)) + 1 <= (length + 1) // 2


def test_all_draws_of_the_reference_occur_equally_often() -> None:
    # src/train_pose.py draws randint(1, (length + 1) // 2) and randint(0, target - length); both
    # include their ends. length 5, target 8: three first chunks times four shifts.
    expected = {
        (*range(first), *range(first + shift, 5 + shift))
        for first in (1, 2, 3)
        for shift in (0, 1, 2, 3)
    }
    seen = Counter(tuple(skipped_positions(seed, 5, 8).tolist()) for seed in range(6000))
    assert set(seen) == expected
    plain = tuple(range(5))  # shift 0 gives the same row for each of the three first chunks
    weights = [3 if row == plain else 1 for row in sorted(seen)]
    found = [seen[row] for row in sorted(seen)]
    wanted = 6000 * np.array(weights) / sum(weights)
    assert stats.chisquare(found, wanted).pvalue > 1e-4


def test_a_training_pass_computes_what_stock_transformers_computes_at_these_positions() -> None:
    base, length, target = BASES[0], 24, 96
    ids, seeds = tokens(length), np.array([3, 4], dtype=np.uint64)
    extended = extend(stock(base), base, method("none"), target=target, training=True,
                      positions="pose")  # fmt: skip
    extended.begin_request(length)
    extended.begin_rows(seeds)
    positions = np.stack([skipped_positions(int(seed), length, target) for seed in seeds])
    assert (positions[:, -1] > length).all()
    with torch.no_grad():
        found = extended.hidden_states(ids)
        model = stock(base).get_decoder()
        for row in range(2):
            at = torch.from_numpy(positions[row : row + 1])
            wanted = model(ids[row : row + 1], position_ids=at).last_hidden_state
            torch.testing.assert_close(found[row : row + 1], wanted, rtol=0, atol=1e-4)


def test_frequencies_that_depend_on_length_are_those_of_the_target() -> None:
    base, dynamic = BASES[0], method("dynamic_pi")
    target = 4 * base.geometry.trained_context
    extended = extend(stock(base), base, dynamic, target=target, training=True, positions="pose")
    extended.begin_request(16)
    table = extended.model.model.rotary_emb.table
    np.testing.assert_allclose(table.inv_freq, base.geometry.inv_freq() / 4)
