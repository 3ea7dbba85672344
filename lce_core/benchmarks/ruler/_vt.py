"""Variable tracking (vt): find all variables of a chain of assignments hidden in noise."""

import string
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from lce_core.benchmarks import CellRequest
from lce_core.benchmarks.ruler._drafts import NOISE, Draft, Draw, InUnits, Units, percent
from lce_core.errors import UnavailableError

TASK = (
    "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n"
    "{context}\nQuestion: Find all variables that are assigned the value {value} in the text above."
)
V1_EXAMPLE = (
    "Memorize and track the chain(s) of variable assignment hidden in the following text."
    " {context} Question: Find all variables that are assigned the value {value} in the text"
)
"""TASK as written in the worked example of RULER's first release: one line, without "above."."""
ANSWER = (
    " Answer: According to the chain(s) of variable assignment in the text above, {count} variables"
    " are {assigned} the value {value}, they are: "
)
CHAIN = 5
"""Variables in a chain. The first is assigned a number, each other one the one before."""
NEW_TOKENS = 30
EXAMPLE_TOKENS = 500
"""Maximum tokens of RULER's worked example, including its answer."""


@dataclass
class Chain:
    """A prompt with a chain of assignments in noise; its size is the number of noise blocks."""

    task: str
    letters: int
    v1: bool
    units: Units
    new_tokens: int = NEW_TOKENS
    sizes: range = range(0)

    def draft(self, size: int, index: int, draw: Draw) -> Draft:
        names = draw.codes(CHAIN, string.ascii_uppercase, self.letters)
        value = str(draw.values.randint(10000, 99999))
        facts = [f"VAR {names[0]} = {value}"]
        facts += [f"VAR {name} = VAR {before} " for before, name in pairwise(names)]
        pieces = _noise(size)
        places = sorted(draw.rng.sample(range(len(pieces)), CHAIN))
        for number, (place, fact) in enumerate(zip(places, facts, strict=True)):
            pieces.insert(place + number, fact)
        context = " ".join(pieces).replace(". \n", ".\n")
        assigned = "assgined" if self.v1 else "assigned"
        answer = ANSWER.format(count=CHAIN, assigned=assigned, value=value)
        text, *controls = (
            f"{self.task.format(context=one, value=value)}{answer}"
            for one in (context, "", " ".join(facts))
        )
        depth = float(np.mean([percent(place, len(pieces)) for place in places]))
        return Draft(text, tuple(names), depth, stated=f" {names}", controls=controls)


class VariableTracking:
    """Variable tracking: a solved example, then a chain whose noise blocks are the prompt's size.

    `v1` uses the release's wording and one example, of the size that `draw` finds, for all samples.
    """

    new_tokens = NEW_TOKENS

    def __init__(self, request: CellRequest, draw: Draw, *, v1: bool) -> None:
        self._v1 = v1
        self.sizes = range(1, request.eval_length + 1)
        self.units = Units(10, 10, NEW_TOKENS, "redrawn")
        self._chain = Chain(TASK, 5, v1, self.units)
        units = replace(self.units, step=5, first=5)
        self._example = Chain(V1_EXAMPLE if v1 else TASK, 3, v1, units)
        fitting = InUnits(replace(request, eval_length=EXAMPLE_TOKENS), self._example, draw)
        try:
            self._example_blocks = fitting.common_size()
            shown, _ = fitting.sample(self._example_blocks, 0)
        # RULER would draw forever. Use the smallest example instead.
        except UnavailableError:
            self._example_blocks = units.first
            shown = self._example.draft(units.first, 0, draw)
        self._shown = _solved(shown)

    def draft(self, size: int, index: int, draw: Draw) -> Draft:
        if self._v1:
            blank, example = " ", self._shown  # RULER does not count the blank
        else:
            blank, example = "", _solved(self._example.draft(self._example_blocks, index, draw))
        chain = self._chain.draft(size, index, draw)
        text, *controls = (f"{blank}{example}\n\n{one}" for one in (chain.text, *chain.controls))
        return replace(chain, text=text, controls=controls, counted=(example, chain.text))


def _solved(example: Draft) -> str:
    return f"{example.text} {' '.join(example.references)}\n\n"


def _noise(num_blocks: int) -> list[str]:
    # At most five blocks are split into sentences, so that there are enough gaps for the facts.
    if num_blocks > CHAIN:
        return [f"{NOISE}\n"] * num_blocks
    sentences = [*(f"{part}." for part in NOISE.removesuffix(".").split(".")), "\n"]
    return sentences * num_blocks
