"""Rotary module of CLEX: frequencies solve a differential equation over the scale of the context.

The scale t extends the trained context t-fold. The equation's right-hand side contains a network of
two matrices, which training learns. At inference, the frequencies of all scales are integrated once
for the given weights. In training, each row has its own scale and real-valued positions, drawn from
the row's seed. Integration runs in float64 on the CPU: a few thousand operations on about a hundred
numbers each are too little work for a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lce_core.attention.rotary import RequestRotary
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable

if TYPE_CHECKING:
    from lce_core.methods.clex import Clex


class ContinuousRotary(RequestRotary):
    """Rotary module whose frequencies a small trained network extends to longer contexts.

    `seed` draws the network's initial weights; before training its output is 0.
    """

    def __init__(
        self,
        method: Clex,
        geometry: RopeGeometry,
        lengths: ContextLengths,
        _num_layers: int = 1,
        *,
        seed: int = 0,
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
        """Use the frequencies of the request's scale, and everything else of `table`."""
        self.lengths = replace(self.lengths, request=num_tokens)
        self._seeds = None
        inv_freq = self._all_scales()[self.method.scale_at(self.lengths) - 1]
        super().begin(replace(table, inv_freq=inv_freq.numpy()), num_tokens)

    def begin_rows(
        self, seeds: NDArray[np.uint64], positions: NDArray[np.int64] | None = None
    ) -> None:
        assert positions is None, "the scale of a row determines its positions"
        self._seeds = seeds

    def turns(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosine and sine (batch or 1, tokens, rotary_dim); gradients reach the network."""
        seeds = self._seeds if self.training else None
        if seeds is None and not torch.is_grad_enabled():
            return super().turns(x, position_ids)
        if seeds is None:
            scales, positions = [self.method.scale_at(self.lengths)], position_ids.double()
        else:
            assert len(seeds) == len(x), f"begin_rows got {len(seeds)} seeds for {len(x)} rows"
            largest = self.method.largest_scale(self.lengths)
            rows = [sample_row(int(seed), self.lengths, largest) for seed in seeds]
            scales, drawn = [row[0] for row in rows], np.stack([row[1] for row in rows])
            sampled = torch.from_numpy(drawn).to(x.device)
            positions = sampled.gather(1, position_ids.expand(len(x), -1))
        inv_freq = self.frequencies(max(scales))[[scale - 1 for scale in scales]]
        return self._of(positions[..., None], inv_freq.to(x.device)[:, None], x)

    def frequencies(self, largest: int) -> Tensor:
        """Return inverse frequencies (largest, pairs) of scales 1..largest, float64 on the CPU."""
        up, down = (weights.to("cpu", torch.float64) for weights in (self.up, self.down))
        activations: dict[str, Callable[[Tensor], Tensor]]
        activations = {"silu": nn.functional.silu, "tanh": torch.tanh}
        activate = activations[self.method.activation]

        def derivative(scale: float, learned: Tensor) -> Tensor:
            # The network's input is log theta(t) + log theta_ntk(t), where log theta(t) is the
            # learned summand plus log theta_ntk(t).
            untrained = np.log(self.method.untrained(self.geometry, scale))
            return activate((learned + torch.from_numpy(2 * untrained)) @ up) @ down

        start = torch.zeros(self.geometry.num_pairs, dtype=torch.float64)
        # Rows of scale 1 use no network, but integrate anyway: in data-parallel training every
        # process must have a gradient for all parameters.
        units = max(1, largest - 1)
        learned = integrate(derivative, start, 1.0, units, self.method.steps_per_scale)[:largest]
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


def sample_row(seed: int, lengths: ContextLengths, largest: int) -> tuple[int, NDArray[np.float64]]:
    """Draw a scale t from 1..largest, and ascending positions (tokens,) of a row of L tokens.

    Positions are drawn from 0..L * t - 1 without replacement; the first and the last of these are
    always chosen. If the row is longer than the trained context C, all positions are divided by
    L / C, so that they stay below t * C.
    """
    rng = np.random.default_rng(seed)
    length = lengths.request
    scale = int(rng.integers(1, largest + 1))
    last = length * scale - 1
    inner = rng.choice(last - 1, size=length - 2, replace=False, shuffle=False) + 1
    positions = np.concatenate(([0], np.sort(inner), [last]))
    return scale, positions / max(1.0, length / lengths.trained)


def integrate(
    derivative: Callable[[float, Tensor], Tensor],
    start: Tensor,
    time: float,
    units: int,
    steps_per_unit: int,
) -> Tensor:
    """Integrate and return states (1 + units, *state) at time, time + 1, .., time + units.

    Kutta's 3/8 rule of fourth order: halving the step divides the error by 16. Differentiable.
    """
    h, state, states = 1 / steps_per_unit, start, [start]
    for unit in range(units):
        for step in range(steps_per_unit):
            t = time + unit + step * h
            k1 = derivative(t, state)
            k2 = derivative(t + h / 3, state + h / 3 * k1)
            k3 = derivative(t + h * 2 / 3, state + h * (k2 - k1 / 3))
            k4 = derivative(t + h, state + h * (k1 - k2 + k3))
            state = state + h / 8 * (k1 + 3 * (k2 + k3) + k4)
        states.append(state)
    return torch.stack(states)
