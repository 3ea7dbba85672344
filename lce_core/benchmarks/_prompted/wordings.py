"""Wordings of a retrieval prompt as tasks: the same keys and depths, asked in other words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pydantic import Field

from lce_core.benchmarks._base import CellRequest
from lce_core.benchmarks._prompted.benchmark import PromptBenchmark

TASKS = ("single", "wording_1", "wording_2")
_KEY_FRAMES = (("", ""), ("\n", "\n"), (" Key: ", " Key? "))


class Worded(PromptBenchmark):
    """Base class of benchmarks whose prompts have three wordings."""

    wordings: int = Field(default=1, ge=1, le=len(TASKS))
    """Number of wordings, each a task of its own: "single" is the published prompt, "wording_1" and
    "wording_2" ask for the same keys at the same depths in other words."""

    def tasks(self) -> tuple[str, ...]:
        return TASKS[: self.wordings]

    def draws(self, request: CellRequest) -> list[np.random.Generator]:
        """Leave out the task, so that scores differ between tasks only by the wording."""
        return super().draws(replace(request, task=TASKS[0]))


def key_frame(task: str) -> tuple[str, str]:
    return _KEY_FRAMES[TASKS.index(task)] if task in TASKS else _KEY_FRAMES[0]


def wording_of(task: str) -> int:
    return TASKS.index(task)
