"""Description of a LongBench task: prompt, scoring and stopping rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from lce_core.benchmarks.longbench.metrics import first_line, has_complete_line

FirstLine = Literal["longbench", "lceg"]
"""Repository whose rule decides for which tasks only the first line of an answer is scored."""
Metric = Callable[[str, str, Sequence[str]], float]
"""Score 0..1 of (prediction, one reference, classes)."""


@dataclass(frozen=True)
class Task:
    """One data set of LongBench: its prompt, and how answers are scored."""

    name: str
    prompt: str
    """Template with the placeholders {context} and {input}."""
    max_new_tokens: int
    metric: Metric
    num_rows: int
    """Rows of the published file."""
    mean_words: int
    """Mean words of a row's context, as counted in LongBench's paper."""
    first_line_rules: frozenset[FirstLine] = frozenset()
    """Rules under which only the first line of an answer is scored."""
    final: Callable[[str], bool] = lambda _: False
    """Returns True if more text cannot change the score; not used if only the first line counts."""

    def question(self, context: str, given: str) -> str:
        """Return the prompt for one row."""
        return self.prompt.format(context=context, input=given)

    def score(
        self, prediction: str, answers: Sequence[str], classes: Sequence[str], rule: FirstLine
    ) -> float:
        """Return the best score over all answers, 0..1."""
        counted = first_line(prediction) if rule in self.first_line_rules else prediction
        return max(self.metric(counted, answer, classes) for answer in answers)

    def complete(self, rule: FirstLine) -> Callable[[str], bool]:
        """Return a function that is True once more text cannot change the score."""
        return has_complete_line if rule in self.first_line_rules else self.final


def without_classes(metric: Callable[[str, str], float]) -> Metric:
    """Wrap a metric that does not need the classes."""
    return lambda prediction, reference, _: metric(prediction, reference)
