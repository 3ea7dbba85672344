"""PoSE: training rows whose positions skip once, so that short rows train long distances.

A row is cut into two chunks. The first keeps its positions; those of the second are shifted by a
random number, so that the row ends anywhere up to the target context. Over many rows every distance
of the target context occurs, although each row is only as long as the trained context.

Source: Zhu et al. 2023, arXiv:2309.10400, section 3.2; lengths and shifts are drawn as in
https://github.com/dwzhu-pku/PoSE/tree/a3d4ba8, src/train_pose.py. Here a row is
continuous text; the reference also leaves out text between the chunks, which made no difference in
its ablation.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from lce_core.attention.rotary import RequestRotary
from lce_core.attention.rotation import frequencies


def skipped_positions(seed: int, length: int, target: int) -> NDArray[np.int64]:
    """Draw the positions of a training row (length,), ascending from 0 and below `target`.

    The first chunk has 1 to (length + 1) // 2 tokens, and the second one is shifted by 0 to
    target - length positions, both drawn uniformly.

    Args:
      seed: seed of the row.
      length: length of the row in tokens.
      target: target context in tokens, at least `length`.
    """
    rng = np.random.default_rng(seed)
    first = int(rng.integers(1, (length + 1) // 2, endpoint=True))
    positions = np.arange(length)
    positions[first:] += int(rng.integers(0, target - length, endpoint=True))
    return positions


class SkipwiseRotary(RequestRotary):
    """Rotary embedding whose positions skip once in each training row (`skipped_positions`)."""

    def __init__(self, rotary_dim: int, target: int) -> None:
        super().__init__(rotary_dim, identity=False)
        self.span = self._target = target
        self._seeds = np.empty(0, np.uint64)

    def begin_rows(self, seeds: NDArray[np.uint64]) -> None:
        self._seeds = seeds

    def forward(
        self, x: torch.Tensor, position_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return cosine and sine (rows, tokens, rotary_dim) at the positions of each row."""
        assert self.table is not None, "begin_request before a pass"
        assert len(self._seeds) == len(x), f"{len(self._seeds)} seeds for {len(x)} rows"
        self._check(position_ids)
        rows = [skipped_positions(int(seed), self.num_tokens, self._target) for seed in self._seeds]
        skipped = torch.from_numpy(np.stack(rows)).to(x.device)
        positions = skipped.gather(1, position_ids.expand(len(x), -1))
        return self._of(positions[..., None].double(), frequencies(self.table, x.device), x)
