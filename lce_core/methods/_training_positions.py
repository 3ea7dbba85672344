"""Positions of the tokens of a training row that are not 0, 1, 2, ..., such as those of PoSE.

Source: Zhu et al. 2023, arXiv:2309.10400, section 3.2; lengths and shifts are drawn as in
https://github.com/dwzhu-pku/PoSE/tree/a3d4ba8, src/train_pose.py. Here a row is continuous text;
the reference also leaves out text between the chunks, which made no difference in its ablation.
"""

import numpy as np
from numpy.typing import NDArray

from lce_core.errors import SpecError
from lce_core.methods import Applied, Method, as_stock
from lce_core.rope import ContextLengths


def skipped_positions(seed: int, length: int, target: int) -> NDArray[np.int64]:
    """Draw the positions of a training row (length,), ascending from 0 and below `target`.

    The row is cut into two chunks. The first one has 1 to (length + 1) // 2 tokens, and the second
    one is shifted by 0 to target - length positions, both drawn uniformly.
    """
    rng = np.random.default_rng(seed)
    first = int(rng.integers(1, (length + 1) // 2, endpoint=True))
    positions = np.arange(length)
    positions[first:] += int(rng.integers(0, target - length, endpoint=True))
    return positions


def row_positions(
    method: Method, lengths: ContextLengths, seed: int, *, pose: bool
) -> NDArray[np.int64] | None:
    """Return the positions of a training row (length,), or PoSE's; None for 0, 1, 2, ..."""
    length, target = lengths.request, lengths.target
    if pose:
        return skipped_positions(seed, length, target)
    positions = method.training_positions(seed, lengths)
    if positions is None:
        return None
    found = np.asarray(positions)
    where = f"{method.plugin_name}.training_positions"
    if found.shape != (length,) or not np.issubdtype(found.dtype, np.integer):
        raise SpecError(
            where,
            f"{found.dtype} of shape {found.shape} for a row of {length} tokens",
            f"integers of shape ({length},), one position per token",
            "return one whole number for each token of the row",
        )
    if found[0] != 0 or (np.diff(found) < 1).any() or found[-1] >= target:
        raise SpecError(
            where,
            f"positions {found[0]} to {found[-1]} for a row of {length} tokens (seed {seed})",
            f"positions that start at 0, increase and stay below the target context, {target}",
            "skip at most target - length positions; rows must not be longer than the target",
        )
    return found.astype(np.int64)


def why_not_skip(applied: Applied) -> str | None:
    """Return why training rows of the method cannot skip positions; None if they can."""
    method, geometry, *_ = applied
    if method.rotary is not None:
        return "trains its frequencies"
    if not as_stock(applied, training=True) or method.insertion(geometry) is not None:
        return "changes attention, or has frequencies per layer or head"
    return None
