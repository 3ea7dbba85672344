"""What a task of LongBench is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from lce_core.benchmarks.longbench.metrics import first_line, has_complete_line

FirstLine = Literal["longbench", "lceg"]
"""Whose rule says in which tasks only an answer's first line counts."""
Metric = Callable[[str, str, Sequence[str]], float]
"""Score 0..1 of (prediction, one reference, classes)."""


@dataclass(frozen=True)
class Task:
    """One data set of LongBench: how it is asked and how an answer is scored."""

    name: str
    prompt: str
    """Template with the places {context} and {input}."""
    max_new_tokens: int
    metric: Metric
    num_rows: int
    """Rows of the published file."""
    mean_words: int
    """Words of a row's context, as LongBench's paper counts them."""
    first_line_rules: frozenset[FirstLine] = frozenset()
    """Rules by which only the first line of an answer counts."""
    final: Callable[[str], bool] = lambda _: False
    """Whether more text cannot change the score, first lines aside."""

    def question(self, context: str, given: str) -> str:
        """The prompt for one row."""
        return self.prompt.format(context=context, input=given)

    def score(
        self, prediction: str, answers: Sequence[str], classes: Sequence[str], rule: FirstLine
    ) -> float:
        """The best score over all answers, 0..1."""
        counted = first_line(prediction) if rule in self.first_line_rules else prediction
        return max(self.metric(counted, answer, classes) for answer in answers)

    def complete(self, rule: FirstLine) -> Callable[[str], bool]:
        """A test of whether more text cannot change the score."""
        return has_complete_line if rule in self.first_line_rules else self.final


def without_classes(metric: Callable[[str, str], float]) -> Metric:
    """A metric that ignores the classes."""
    return lambda prediction, reference, _: metric(prediction, reference)
