"""Rows of training steps: each epoch sees every row once, in an order of its own."""

import numpy as np

from lce_core.training.schedule import rows_of_step


def epochs(seed: int) -> list[list[int]]:
    """Rows of three epochs of 30, read in steps of 9."""
    rows = np.concatenate([rows_of_step(seed, step, 9, 30) for step in range(10)])
    return rows.reshape(3, 30).tolist()  # type: ignore[no-any-return]


def test_every_epoch_has_an_order_of_its_own():
    orders = [tuple(epoch) for seed in (0, 1) for epoch in epochs(seed)]
    assert all(sorted(order) == list(range(30)) for order in orders)
    assert len(set(orders)) == 6
