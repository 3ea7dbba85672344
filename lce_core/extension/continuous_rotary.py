"""The rotary module of methods whose frequencies flow with the scale of the context (CLEX).

The module's two matrices are the network of the differential equation. In use, the frequencies of
all scales are integrated once for given weights and become the tables of requests. In training,
each row has a scale and real-valued positions of its own, which follow from the row's seed alone;
one integration serves all rows of a forward pass, up to the largest of their scales.

Integration runs in float64 on the CPU, wherever the model is: it consists of some thousand
operations on a hundred numbers each, which a GPU could only wait for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lce_core.attention.rotary import RequestRotary
from lce_core.errors import SpecError
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable

if TYPE_CHECKING:
    from lce_core.methods.clex import Clex

Change = Callable[[float, Tensor], Tensor]
"""Right side of a differential equation: derivative at a time, of a state."""

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": nn.functional.silu,
    "tanh": torch.tanh,
}


class ContinuousRotary(RequestRotary):
    """Cosines and sines of frequencies that a small network continues to longer contexts.

    Args:
      method: gives the equation without the network, scales and integration.
      geometry: of the base model.
      lengths: trained and target context.
      seed: of the weights that training starts from; before training they have no effect.
    """

    def __init__(
        self, method: Clex, geometry: RopeGeometry, lengths: ContextLengths, *, seed: int = 0
    ) -> None:
        super().__init__(geometry.rotary_dim, identity=False)
        self.method, self.geometry, self.lengths = method, geometry, lengths
        width = method.expansion * geometry.rotary_dim
        self.up = nn.Parameter(torch.empty(geometry.num_pairs, width))
        self.down = nn.Parameter(torch.zeros(width, geometry.num_pairs))
        generator = torch.Generator().manual_seed(seed)
        nn.init.kaiming_uniform_(self.up, a=math.sqrt(5), generator=generator)
        self._seeds: NDArray[np.uint64] | None = None
        self._integrated: tuple[Tensor, Tensor, Tensor] | None = None

    def begin(self, table: RopeTable, num_tokens: int) -> None:
        """Puts the learned frequencies of the request's scale in force, for present weights."""
        self.lengths = replace(self.lengths, request=num_tokens)
        self._seeds = None
        inv_freq = self._all_scales()[self.method.scale_at(self.lengths) - 1]
        super().begin(replace(table, inv_freq=inv_freq.numpy()), num_tokens)

    def begin_rows(self, seeds: NDArray[np.uint64]) -> None:
        """Announces training rows, whose scales and positions follow from these seeds."""
        self._seeds = seeds

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine (batch or 1, tokens, rotary_dim), in the dtype that RequestRotary gives.

        In training mode, rows that were announced get their own frequencies and positions; all else
        is read with those of the request. Gradients reach the network wherever they are recorded.

        Raises:
          SpecError: no request was begun, positions are beyond it, or other rows were announced.
        """
        seeds = self._seeds if self.training else None
        if self.table is None or (seeds is None and not torch.is_grad_enabled()):
            return super().forward(x, position_ids)
        self._check(position_ids)
        if seeds is None:
            scales, positions = [self.method.scale_at(self.lengths)], position_ids.double()
        else:
            scales, positions = self._sample(seeds, x, position_ids)
        inv_freq = self.frequencies(max(scales))[[scale - 1 for scale in scales]]
        return self._of(positions[..., None], inv_freq.to(x.device)[:, None], x)

    def frequencies(self, largest: int) -> Tensor:
        """Inverse frequencies (largest, pairs) of scales 1..largest, differentiable.

        Returns:
          float64 on the CPU; those of scale 1 are exactly the base model's.
        """
        up, down = (weights.to("cpu", torch.float64) for weights in (self.up, self.down))
        activate = _ACTIVATIONS[self.method.activation]

        def change(scale: float, learned: Tensor) -> Tensor:
            # The network sees log theta(t) + log theta_ntk(t); the first is learned + the second.
            untrained = np.log(self.method.untrained(self.geometry, scale))
            return activate((learned + torch.from_numpy(2 * untrained)) @ up) @ down

        start = torch.zeros(self.geometry.num_pairs, dtype=torch.float64)
        # Rows of scale 1 alone use no network, but processes exchange gradients of all parameters.
        units = max(1, largest - 1)
        learned = integrate(change, start, 1.0, units, self.method.steps_per_scale)[:largest]
        scales = range(1, largest + 1)
        untrained = np.stack([self.method.untrained(self.geometry, scale) for scale in scales])
        return torch.from_numpy(untrained) * learned.exp()

    def _all_scales(self) -> Tensor:
        weights = [parameter.detach().cpu() for parameter in (self.up, self.down)]
        if self._integrated is None or not all(map(torch.equal, weights, self._integrated)):
            up, down = (tensor.clone() for tensor in weights)
            with torch.no_grad():
                found = self.frequencies(self.method.largest_scale(self.lengths))
            self._integrated = up, down, found
        return self._integrated[-1]

    def _sample(
        self, seeds: NDArray[np.uint64], x: Tensor, position_ids: Tensor
    ) -> tuple[list[int], Tensor]:
        """Scale of each row, and positions (rows, tokens) float64 on the device of `x`."""
        if len(seeds) != len(x):
            raise SpecError(
                "training rows",
                f"{len(x)} rows",
                f"the {len(seeds)} rows that were announced",
                "call begin_rows with one seed for each row of the next forward pass",
            )
        largest = self.method.largest_scale(self.lengths)
        rows = [sample_row(int(seed), self.lengths, largest) for seed in seeds]
        sampled = torch.from_numpy(np.stack([row.positions for row in rows])).to(x.device)
        return [row.scale for row in rows], sampled.gather(1, position_ids.expand(len(x), -1))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        # Casting the model moves these weights and keeps their precision, like the tables'.
        def move(tensor: Tensor) -> Tensor:
            return tensor.to(fn(tensor).device)

        return super()._apply(move, recurse)  # type: ignore[no-untyped-call]


@dataclass(frozen=True, eq=False)
class SampledRow:
    """What is random about one training row."""

    scale: int
    positions: NDArray[np.float64]
    """(tokens,) ascending, from 0, below scale * trained context."""


def sample_row(seed: int, lengths: ContextLengths, largest: int) -> SampledRow:
    """Draws a scale t from 1..largest, and as many positions of its context as the row has tokens.

    All L * t positions of a row spread t-fold are candidates; the first and the last are taken,
    the others drawn without replacement, and all divided by L / C, so that a row of several trained
    contexts fills the same range more densely.

    Args:
      seed: of the row.
      lengths: `request` is the row's length L, at least 2 tokens.
      largest: largest scale.
    """
    rng = np.random.default_rng(seed)
    length = lengths.request
    scale = int(rng.integers(1, largest + 1))
    last = length * scale - 1
    inner = rng.choice(last - 1, size=length - 2, replace=False, shuffle=False) + 1
    positions = np.concatenate(([0], np.sort(inner), [last]))
    return SampledRow(scale, positions / max(1.0, length / lengths.trained))


def integrate(
    change: Change, start: Tensor, time: float, units: int, steps_per_unit: int
) -> Tensor:
    """States (1 + units, *state) at time, time + 1, .., time + units, differentiable.

    Kutta's 3/8 rule, of fourth order; twice the steps leave a sixteenth of the error.

    Args:
      change: derivative at a time, of a state.
      start: state at `time`.
      time: where integration starts.
      units: how far it goes.
      steps_per_unit: equal steps in each unit.
    """
    h, state, states = 1 / steps_per_unit, start, [start]
    for unit in range(units):
        for step in range(steps_per_unit):
            t = time + unit + step * h
            k1 = change(t, state)
            k2 = change(t + h / 3, state + h / 3 * k1)
            k3 = change(t + h * 2 / 3, state + h * (k2 - k1 / 3))
            k4 = change(t + h, state + h * (k1 - k2 + k3))
            state = state + h / 8 * (k1 + 3 * (k2 + k3) + k4)
        states.append(state)
    return torch.stack(states)
