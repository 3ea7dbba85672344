"""A conversation about one text: each question follows the model's own answers to the earlier ones.

Documents, keys, questions and metrics are those of `multi_key`, but all questions about a context
are turns of one conversation, in random order; so the difference to `multi_key` is the effect of
the conversation. All turns together fit the cell's length.

Further metrics: `turn_1`, `turn_2`, ... are the accuracies of single turns, and `turn_slope` is the
accuracy of the last turn minus that of the first. A sample is one turn.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from lce_core.benchmarks import (
    CellRequest,
    CellResult,
    Examples,
    Prompt,
    Sample,
    Score,
    Source,
    TokenIds,
    calls,
    column_mean,
    score,
)
from lce_core.benchmarks.multi_key import QUESTION_TOKENS, MultiKey
from lce_core.statistics.estimates import mean_estimate


class MultiTurn(MultiKey):
    """Retrieval of several keys in one conversation: `accuracy` is the fraction of right turns."""

    conversation = True

    def slack_tokens(self, request: CellRequest) -> int:
        return self.num_keys * QUESTION_TOKENS  # a prompt contains only its own question

    def evaluate(self, request: CellRequest) -> CellResult:
        result = super().evaluate(request)
        return replace(result, scores=(*result.scores, *self.turns(result.samples)))

    def turns(self, samples: Sequence[Sample]) -> tuple[Score, ...]:
        each = [samples[turn :: self.num_keys] for turn in range(self.num_keys)]
        names = [f"turn_{number}" for number in range(1, self.num_keys + 1)]
        found = [column_mean(own, "score", name) for name, own in zip(names, each, strict=True)]
        slopes = [last.score - first.score for first, last in zip(each[0], each[-1], strict=True)]
        clusters = [sample.cluster for sample in each[0]]
        slope = score("turn_slope", mean_estimate(slopes, clusters), higher_is_better=True)
        return (*found, slope)

    def _about(
        self, request: CellRequest, document: str, text: TokenIds, rng: np.random.Generator
    ) -> Iterator[Prompt]:
        prompts = [*super()._about(request, document, text, rng)]
        for turn in rng.permutation(len(prompts)):
            yield prompts[turn]


def turn_accuracies(scores: Sequence[float], num_keys: int) -> list[float]:
    samples = [Sample(index, 0, value) for index, value in enumerate(scores)]
    return [one.value for one in MultiTurn(num_keys=num_keys).turns(samples)]


BENCHMARK = MultiTurn
SOURCE = Source(
    paper="own",
    place="multi_key as a conversation; multi-turn retrieval over one context as in"
    " arXiv:2412.10319",
    reference="own",
)
EVIDENCE = (
    calls(
        turn_accuracies,
        [1.0, 0.5, 0.0, -1.0],
        "by hand: two conversations of three turns",
        scores=[1.0, 1.0, 0.0, 1.0, 0.0, 0.0],
        num_keys=3,
    ),
)
EXAMPLES: Examples = ({"num_contexts": 2, "num_keys": 2},)
VERSION = 1
