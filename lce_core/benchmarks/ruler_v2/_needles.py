"""The tasks mk_niah_basic and mv_niah_basic: one key's values among the values of other keys."""

from __future__ import annotations

import math
from random import Random

import numpy as np

from lce_core.benchmarks.ruler._drafts import Draft, Draw, Units
from lce_core.benchmarks.ruler._niah import NEEDLE, ONE, SEVERAL, among_lines
from lce_core.benchmarks.ruler._vocabulary import draw_item

_SEVERAL = SEVERAL.replace("memorize it", "memorize them")
DIGITS = 10
"""Digits of a value."""


class ManyNeedles:
    """One of the two tasks; the size of a prompt is its number of other needles."""

    def __init__(self, num_values: int, new_tokens: int, eval_length: int) -> None:
        self._num_values, self.new_tokens = num_values, new_tokens
        self.sizes = range(num_values, num_values + eval_length + 1)
        self.units = Units(1, num_values, new_tokens, "redrawn smaller", least=num_values)

    def draft(self, size: int, index: int, draw: Draw) -> Draft:
        """Give all keys equally many values."""
        rng, count = draw.rng, self._num_values
        keys = _distinct(1 + math.ceil(size / count), rng)
        asked, others = keys[0], (keys[1:] * count)[:size]
        lines = [_needle(key, rng) for key in others]
        if count > 1:
            rng.shuffle(lines)
        values = [_value(rng) for _ in range(count)]
        facts = [NEEDLE.format(values="numbers", key=asked, value=value) for value in values]
        context, depths = among_lines(lines, facts, rng)
        template, what = (ONE, "number") if count == 1 else (_SEVERAL, "numbers")
        text, *controls = (
            template.format(values=what, context=one, query=asked)
            for one in (context, "", "\n".join(facts))
        )
        return Draft(text, tuple(values), float(np.mean(depths)), controls=tuple(controls))


def _distinct(count: int, rng: Random) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found[draw_item("words", rng)] = None
    return list(found)


def _value(rng: Random) -> str:
    return str(rng.randint(10 ** (DIGITS - 1), 10**DIGITS - 1))


def _needle(key: str, rng: Random) -> str:
    return NEEDLE.format(values="numbers", key=key, value=_value(rng))
