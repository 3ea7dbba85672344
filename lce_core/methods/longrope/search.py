"""LongRoPE's evolutionary search for the divisors of the frequencies.

An individual has a factor for each frequency pair; factors never decrease from the fastest to the
slowest pair. In each round the individuals with the lowest losses are parents, and mutations and
crossovers of parents are added.

Guided by perplexity (LongRoPE), it starts from PI, NTK and YaRN, and every factor may take values
from 1 to 1.25 s for an extension by s. Guided by needles (LongRoPE2), an individual also has a
critical pair. From this pair on, factors take values from s to 2 s. Faster pairs follow NTK: the
base is changed so that the critical pair has its factor. The search tries all critical pairs from
the one with ten periods in the trained context to the one with a single period.

Source: Ding et al. 2024, arXiv:2402.13753, section 3.2, table 4; Shang et al. 2025,
arXiv:2502.20082, section 3.2, algorithms 1 and 2, appendix B.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from pydantic import Field, model_validator

from lce_core.errors import SpecError
from lce_core.methods._by_parts import WithTemperature
from lce_core.methods._ntk import ntk_frequencies
from lce_core.methods._searching import Loss, ParameterSearch, SearchResult
from lce_core.rope import ContextLengths, RopeGeometry

PARAMETER = "long_factors"
_BEYOND = 1.25
"""Largest factor of a search guided by perplexity, divided by the extension (table 4)."""
_BEYOND_CRITICAL = 2.0
"""Largest factor of a search guided by needles, divided by the extension (algorithm 2)."""
_PERIODS = 10
"""Periods in the trained context of the first pair that may be the critical one (algorithm 1)."""
_ATTEMPTS = 20
"""Attempts at a mutation or crossover that is valid and new."""


@dataclass(frozen=True)
class _Individual:
    factors: tuple[float, ...]
    critical: int
    """First pair whose factor is searched; faster pairs follow it. 0 searches every pair."""


class FactorSearch(ParameterSearch):
    """Settings of the search; the defaults are those of both papers."""

    population: int = Field(default=64, ge=3)
    """Number of individuals before the first round; guided by needles, at least the critical pairs
    of the model."""
    parents: int = Field(default=32, ge=2)
    """Number of individuals that each round keeps; at most `population`."""
    mutations: int = Field(default=16, ge=0)
    """Number of mutations that each round adds."""
    crossovers: int = Field(default=16, ge=0)
    """Number of crossovers that each round adds."""
    iterations: int = Field(default=40, ge=0)
    """Number of rounds."""
    mutation_probability: float = Field(default=0.3, gt=0, le=1)
    """Probability with which a mutation changes a factor."""
    step: float = Field(default=0.01, gt=0)
    """Mutated factors are multiples of this number."""

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.parents > self.population:
            raise SpecError(
                "parents",
                f"{self.parents} parents in a population of {self.population}",
                "at most as many parents as individuals",
                "lower `parents` or raise `population`",
            )
        return self

    @property
    def max_trials(self) -> int:
        return self.population + self.iterations * (self.mutations + self.crossovers)

    def start(self, geometry: RopeGeometry, lengths: ContextLengths) -> tuple[float, ...]:
        """Return YaRN's factors (pairs,) or, guided by needles, NTK's at the last critical pair."""
        return _beginning(self.guide == "needles", geometry, lengths)[-1].factors

    def run(self, geometry: RopeGeometry, lengths: ContextLengths, loss: Loss) -> SearchResult:
        return _Evolution(self, geometry, lengths, loss).found()


class _Evolution:
    def __init__(
        self, search: FactorSearch, geometry: RopeGeometry, lengths: ContextLengths, loss: Loss
    ) -> None:
        scale, needles = lengths.target / lengths.trained, search.guide == "needles"
        self._search, self._loss = search, loss
        self._lowest = scale if needles else 1.0
        self._highest = scale * (_BEYOND_CRITICAL if needles else _BEYOND)
        self._rng = np.random.default_rng(search.seed)
        self._losses: dict[tuple[float, ...], float] = {}
        self._first = _beginning(needles, geometry, lengths)
        for index, one in enumerate(self._first if needles else ()):
            factor = round(float(self._rng.uniform(self._lowest, self._highest)), 2)
            factors = [max(factor, self._lowest)] * len(one.factors)
            self._first[index] = _following(factors, one.critical)

    def found(self) -> SearchResult:
        search = self._search
        population = [tried for one in self._first if (tried := self._try(one))]
        start_loss = min(map(self._loss_of, population))
        number = len(population)
        while len(population) < search.population:
            varied = self._mutation(population[len(population) % number])
            if varied is None:
                break
            population.append(varied)
        best = [min(map(self._loss_of, population))]
        for _ in range(search.iterations):
            # The sort is stable, so that earlier individuals win ties.
            parents = sorted(population, key=self._loss_of)[: search.parents]
            children = [self._mutation(self._one_of(parents)) for _ in range(search.mutations)]
            children += [self._crossover(parents) for _ in range(search.crossovers)]
            population = parents + [one for one in children if one]
            best.append(min(map(self._loss_of, population)))
        factors, loss = min(self._losses.items(), key=lambda tried: tried[1])
        return SearchResult(
            parameters={PARAMETER: list(factors), "search": None},
            loss=loss,
            start_loss=start_loss,
            num_trials=len(self._losses),
            best=tuple(best),
        )

    def _loss_of(self, tried: _Individual) -> float:
        return self._losses[tried.factors]

    def _try(self, one: _Individual) -> _Individual | None:
        """Measure the individual's loss; None if its factors decrease or were tried before."""
        if one.factors in self._losses or any(np.diff(one.factors) < 0):
            return None
        self._losses[one.factors] = self._loss({PARAMETER: list(one.factors), "search": None})
        return one

    def _one_of(self, parents: Sequence[_Individual]) -> _Individual:
        return parents[int(self._rng.integers(len(parents)))]

    def _mutation(self, parent: _Individual) -> _Individual | None:
        step = self._search.step
        for _ in range(_ATTEMPTS):
            factors = list(parent.factors)
            for pair in range(parent.critical, len(factors)):
                if self._rng.random() >= self._search.mutation_probability:
                    continue
                low = factors[pair - 1] if pair > parent.critical else self._lowest
                high = factors[pair + 1] if pair + 1 < len(factors) else self._highest
                # A millionth of a step covers the rounding of multiples of the step.
                first, last = math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6)
                if first <= last:
                    factors[pair] = round(step * int(self._rng.integers(first, last + 1)), 9)
            if tried := self._try(_following(factors, parent.critical)):
                return tried
        return None

    def _crossover(self, parents: Sequence[_Individual]) -> _Individual | None:
        one = self._one_of(parents)
        for _ in range(_ATTEMPTS):
            other = self._one_of(parents)
            if other.critical != one.critical:
                continue
            ends = self._rng.integers(one.critical, len(one.factors) + 1, size=2)
            begin, end = sorted(map(int, ends))
            factors = [*one.factors[:begin], *other.factors[begin:end], *one.factors[end:]]
            if tried := self._try(_following(factors, one.critical)):
                return tried
        return self._mutation(one)


def _beginning(needles: bool, geometry: RopeGeometry, lengths: ContextLengths) -> list[_Individual]:
    scale = lengths.target / lengths.trained
    if needles:
        pairs = [scale] * geometry.num_pairs
        return [_following(pairs, critical) for critical in critical_pairs(geometry)]
    own = geometry.inv_freq()
    frequencies = [own / scale, WithTemperature().by_parts(geometry, scale)]
    if geometry.num_pairs > 1:
        frequencies.insert(1, ntk_frequencies(geometry, scale))
    # Rounding hides the last bits, in which equal factors may differ and decrease.
    return [_Individual(tuple(np.round(own / one, 9).tolist()), 0) for one in frequencies]


def critical_pairs(geometry: RopeGeometry) -> range:
    """Return the critical pairs that the search guided by needles tries.

    The last one is the first pair whose period exceeds the trained context.
    """
    last = geometry.num_pairs - 1

    def with_periods(number: int) -> int:
        pair = math.ceil(geometry.pair_with(number))
        return min(max(pair, min(1, last)), last)

    return range(with_periods(_PERIODS), with_periods(1) + 1)


def _following(factors: Sequence[float], critical: int) -> _Individual:
    """Let pairs i before the critical one follow NTK: its factor f gives them f^(i / critical)."""
    least = factors[critical]
    before = (round(least ** (pair / critical), 9) for pair in range(critical))
    return _Individual((*before, *factors[critical:]), critical)
