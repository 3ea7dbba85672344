"""Learning rate, rows and seeds of a training step, as pure functions of the step number."""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lce_core.recipe import Training


def learning_rate(training: Training, step: int, num_steps: int) -> float:
    """Return the learning rate of training step `step` (0 is the first of `num_steps`)."""
    peak = training.learning_rate
    if step < training.warmup_steps:
        return peak * (step + 1) / training.warmup_steps
    if training.schedule == "constant":
        return peak
    # Step `num_steps`, which is never run, would get the final fraction: the last step learns too.
    progress = (step - training.warmup_steps) / max(1, num_steps - training.warmup_steps)
    left = 1 - progress if training.schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return peak * (training.final_fraction + (1 - training.final_fraction) * left)


def rows_of_step(seed: int, step: int, rows_per_step: int, num_rows: int) -> NDArray[np.int64]:
    """Return the indices (rows_per_step,) of the packed rows that training step `step` reads.

    Each epoch is a permutation of all rows, drawn from `seed`; a step may span two epochs.
    """
    places = np.arange(step * rows_per_step, (step + 1) * rows_per_step, dtype=np.int64)
    epochs, within = np.divmod(places, num_rows)
    rows = np.empty(rows_per_step, dtype=np.int64)
    for epoch in np.unique(epochs):
        chosen = epochs == epoch
        rows[chosen] = _permutation(seed, int(epoch), num_rows)[within[chosen]]
    return rows


def share(
    rows: NDArray[np.int64], process: int, num_processes: int, micro_rows: int
) -> list[NDArray[np.int64]]:
    """Split a step's rows over processes; return the micro-batches of one process."""
    # All processes get the same number, because all take part in every gradient exchange.
    most = -(-len(rows) // num_processes)
    mine = rows[process * most : (process + 1) * most]
    return [mine[start : start + micro_rows] for start in range(0, most, micro_rows)]


def row_seeds(seed: int, step: int, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a seed for each row (rows,), whichever process reads it."""
    drawn = [np.random.SeedSequence([seed, step, int(row)]) for row in rows]
    return np.array([mixed.generate_state(1, np.uint64)[0] for mixed in drawn], dtype=np.uint64)


@lru_cache(maxsize=2)
def _permutation(seed: int, epoch: int, num_rows: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, epoch]).permutation(num_rows)
