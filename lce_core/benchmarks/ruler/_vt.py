"""Variable tracking (vt): a chain of assignments among noise; which variables hold the value?

One worked example stands before the task.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lce_core.benchmarks import CellRequest
from lce_core.benchmarks._prompted.retrieval import encode
from lce_core.benchmarks.ruler._drafts import NOISE, PERMUTATION_SEED, Draft, Draw, percent
from lce_core.benchmarks.ruler._fitting import largest_place
from lce_core.benchmarks.ruler._vocabulary import draw_codes

TASK = (
    "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n"
    "{context}\nQuestion: Find all variables that are assigned the value {value} in the text above."
)
V1_EXAMPLE = (
    "Memorize and track the chain(s) of variable assignment hidden in the following text."
    " {context} Question: Find all variables that are assigned the value {value} in the text"
)
"""What v1 makes of TASK in the example: without line breaks and without the last word."""
ANSWER = (
    " Answer: According to the chain(s) of variable assignment in the text above, {count} variables"
    " are {assigned} the value {value}, they are: "
)
CHAIN = 5
"""Variables of the one chain: a number and four hops."""
EXAMPLE_TOKENS = 500
EXAMPLE_UNIT = 5


@dataclass(frozen=True)
class _Chain:
    context: str
    value: str
    names: tuple[str, ...]
    depth: float


class VariableTracking:
    """Sizes are blocks of noise.

    Args:
      request: tokenizer and length.
      v1: the first release's wording and one example for all samples; otherwise the example's
        names and number are the sample's own.
      units: whether sizes go by tens of blocks or one by one.
    """

    new_tokens = reserved = 30

    def __init__(self, request: CellRequest, *, v1: bool, units: bool) -> None:
        self._v1 = v1
        step = 10 if units else 1
        self.sizes = range(step, request.eval_length + step, step)
        self._example_blocks = EXAMPLE_UNIT

        def tokens(place: int) -> int:
            self._example_blocks = EXAMPLE_UNIT * (place + 1)
            rng = np.random.default_rng(PERMUTATION_SEED)
            return len(encode(request, self._example(rng, rng)))

        places = EXAMPLE_TOKENS // EXAMPLE_UNIT
        best = max(0, largest_place(tokens, places, EXAMPLE_TOKENS - self.new_tokens))
        self._example_blocks = EXAMPLE_UNIT * (best + 1)

    def draft(self, size: int, draw: Draw) -> Draft:
        """A prompt with `size` blocks of noise."""
        chain = _chain(size, 5, draw.rng, draw.rng)
        example = self._example(draw.order if self._v1 else draw.rng, draw.order)
        text = f"{example}{TASK.format(context=chain.context, value=chain.value)}"
        return Draft(text + self._answer(chain), chain.names, chain.depth)

    def _example(self, names: np.random.Generator, places: np.random.Generator) -> str:
        chain = _chain(self._example_blocks, 3, names, places)
        task = (V1_EXAMPLE if self._v1 else TASK).format(context=chain.context, value=chain.value)
        blank = " " if self._v1 else ""
        return f"{blank}{task}{self._answer(chain)} {' '.join(chain.names)}\n\n\n\n"

    def _answer(self, chain: _Chain) -> str:
        assigned = "assgined" if self._v1 else "assigned"
        return ANSWER.format(count=CHAIN, assigned=assigned, value=chain.value)


def _chain(
    num_blocks: int, letters: int, names: np.random.Generator, places: np.random.Generator
) -> _Chain:
    variables = draw_codes(CHAIN, string.ascii_uppercase, letters, names)
    value = str(names.integers(10000, 100000))
    facts = [f"VAR {variables[0]} = {value}"]
    facts += [f"VAR {name} = VAR {before} " for before, name in pairwise(variables)]
    pieces = [f"{NOISE}\n"] * num_blocks
    if num_blocks <= CHAIN:  # too few places between blocks: use those between sentences
        pieces = [f"{part}." if part.strip() else part for part in "".join(pieces).split(".")]
    at = sorted(places.choice(len(pieces), size=CHAIN, replace=False).tolist())
    for number, (place, fact) in enumerate(zip(at, facts, strict=True)):
        pieces.insert(place + number, fact)
    context = " ".join(pieces).replace(". \n", ".\n")
    depth = float(np.mean([percent(place, len(pieces)) for place in at]))
    return _Chain(context, value, tuple(variables), depth)
