"""Prompts with every field filled, and whether two rows of prompts are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from lce_core.benchmarks._prompted.retrieval import Prompt
from lce_core.benchmarks.ruler import RulerPrompt

WHOLE = tuple(
    RulerPrompt(np.arange(size), f"reference {size}", size / 7, (f"a {size}", "b"), "one")
    for size in range(40, 44)
)


def same(one: Sequence[Prompt], other: Sequence[Prompt]) -> bool:
    def rows(prompts: Sequence[Prompt]) -> list[Any]:
        return [
            [type(p), p.ids.dtype, *(getattr(p, field.name) for field in fields(p)[1:]), *p.ids]
            for p in prompts
        ]

    return rows(one) == rows(other)
