"""Profiles of many-shot learning, with questions (`ShotForm`) or key tokens (`ShotKeys`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lce_core.benchmarks import CellRequest, KeyForm, Prompt, PromptForm, generator
from lce_core.benchmarks._prompted.retrieval import key_task_reason
from lce_core.benchmarks.many_shot.demonstrations import key_demonstrations
from lce_core.models import LanguageModel

SHOTS = (1, 5, 10, 25, 50, 75, 100, 200, 300, 400, 500, 625, 750, 875, 1000)
"""LCEG's numbers of examples."""
TINY_SHOTS = (1, 5, 10, 25)


@dataclass(frozen=True)
class ShotForm(PromptForm):
    """A profile whose examples and questions are TREC questions."""

    shots: tuple[int, ...] = SHOTS
    """Numbers of examples, one task each."""
    permutations: int = 5
    """Number of permutations of the examples."""
    num_questions: int = 200
    """Number of questions per permutation."""


@dataclass(frozen=True)
class ShotKeys(ShotForm, KeyForm):
    """A profile whose examples are (query token, key token) pairs instead of questions."""

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        minimum = 3 * num_shots(task) + 3
        if base_model.keys is not None and eval_length < minimum:
            return (
                f"eval_length {eval_length}: {task} needs at least {minimum} tokens (query, key and"
                " a token of text for each example, and the question)"
            )
        return key_task_reason(base_model, 0, max(eval_length, minimum))

    def build(self, benchmark: Any, request: CellRequest) -> list[Prompt]:
        place = ("many_shot", request.task, request.eval_length, request.seed)
        orders, questions = benchmark.orders(), benchmark.questions()
        return [
            prompt
            for order in range(orders)
            for prompt in key_demonstrations(
                request,
                num_shots(request.task),
                [generator(*place, order, index) for index in range(questions)],
                generator(*place, order),
                balanced=benchmark.balanced,
            )
        ]


def num_shots(task: str) -> int:
    return int(task.removeprefix("shots_"))
