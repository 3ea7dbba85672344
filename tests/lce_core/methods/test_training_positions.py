"""Positions of training rows: PoSE's against its reference, and those of a user's method."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lce_core.contracts.methods import check_training_positions
from lce_core.contracts.tiny_models import BASES, stock, tokens
from lce_core.errors import SpecError
from lce_core.extension.extending import extend
from lce_core.methods import METHODS, Method
from lce_core.methods._training_positions import skipped_positions
from tests.support.extended_models import method
from tests.support.plugin_copies import Change, copied
from tests.support.studies import TINY, compiled

HOOK: Change = (
    "    def rope_table(",
    """    def training_positions(self, seed, lengths):
        import numpy as np

        length = lengths.request
        skips = np.random.default_rng(seed).integers(0, max(1, lengths.target - length + 1), size=3)
        cuts = [0, *(max(1, length * part // 4) for part in (1, 2, 3)), length]
        shifts = np.repeat([0, *np.sort(skips)], np.diff(cuts))
        return np.arange(length) + shifts

    def rope_table(""",
)
"""A method of a user that skips text three times in each row."""


@given(st.integers(0, 2**63), st.integers(1, 64), st.integers(0, 300))
def test_a_row_skips_once_and_stays_below_the_target(seed, length, more):
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


def test_a_training_pass_computes_what_stock_transformers_computes_at_these_positions():
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


def test_frequencies_that_depend_on_length_are_those_of_the_target():
    base, dynamic = BASES[0], method("dynamic_pi")
    target = 4 * base.geometry.trained_context
    extended = extend(stock(base), base, dynamic, target=target, training=True, positions="pose")
    extended.begin_request(16)
    table = extended.model.model.rotary_emb.table
    np.testing.assert_allclose(table.inv_freq, base.geometry.inv_freq() / 4)


@pytest.fixture
def skipping(tmp_path) -> Iterator[type[Method]]:
    """Position interpolation with training rows that skip text."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    with copied(METHODS, "pi", folder, HOOK) as plugin:
        yield plugin


@torch.no_grad()
def test_a_method_with_positions_keeps_the_contract(skipping):
    check_training_positions(skipping, {})


@pytest.mark.parametrize(
    ("positions", "problem"),
    [
        ("np.arange(lengths.request) + 1", "positions 1 to 16"),
        ("np.arange(lengths.request) // 2", "positions 0 to 7"),
        ("np.arange(lengths.request) * 5", "positions 0 to 75"),
        ("np.arange(3)", r"shape \(3,\) for a row of 16 tokens"),
        ("np.arange(lengths.request) / 2", "float64 of shape"),
    ],
)
def test_wrong_positions_are_refused(positions, problem, tmp_path):
    hook = "    def training_positions(self, seed, lengths):\n        import numpy as np\n\n"
    hook += f"        return {positions}\n\n"
    changes = ((HOOK[0], hook + HOOK[0]),)
    with copied(METHODS, "pi", tmp_path, *changes) as plugin:
        extended = extend(stock(BASES[0]), BASES[0], plugin(), target=64, training=True)
        with pytest.raises(SpecError, match=problem):
            extended.begin_request(16)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"train_length": 512, "target_context": 256}, "stay below the target context, 256"),
        ({"train_positions": "pose", "train_length": 64}, "draws positions of its own"),
    ],
)
def test_a_plan_refuses_rows_that_cannot_skip(changes, problem, skipping, text):
    entry = {"name": skipping.plugin_name, "label": "skip", "tuned": True, **changes}
    with pytest.raises(SpecError, match=problem):
        compiled({**TINY, "methods": [entry]}, text)
