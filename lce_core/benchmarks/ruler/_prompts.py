"""Tokenised prompts of RULER, and the error about lengths that are too short for any prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from lce_core.benchmarks import CellRequest
from lce_core.benchmarks._prompted.retrieval import Prompt
from lce_core.benchmarks.ruler._drafts import Draft
from lce_core.errors import UnavailableError


@dataclass(frozen=True, eq=False)
class RulerPrompt(Prompt):
    """A prompt with all its references; `reference` holds them joined by " | "."""

    references: tuple[str, ...] = ()
    cluster: str | None = None

    @property
    def right_answers(self) -> tuple[str, ...]:
        return self.references


def prompt_of(draft: Draft, ids: list[int]) -> RulerPrompt:
    return RulerPrompt(
        np.array(ids, dtype=np.int64),
        " | ".join(draft.references),
        draft.depth,
        draft.references,
        draft.cluster,
    )


def refuse(request: CellRequest, needed: int) -> NoReturn:
    """Raise UnavailableError: the smallest prompt and its answer need `needed` tokens."""
    raise UnavailableError(
        f"{request.task}: eval_length",
        f"{request.eval_length} tokens, where the smallest prompts and their answers take {needed}",
        f"at least {needed} tokens",
        "evaluate longer contexts",
    )
