"""Prompts with every field filled, and whether two rows of prompts are the same."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from lce_core.benchmarks import Prompt

WHOLE = tuple(
    Prompt(
        np.arange(size),
        f"reference {size}",
        size / 7,
        evidence="c",
        references=(f"a {size}", "b"),
        cluster="one",
        context_tokens=3,
        labels=("d", "e"),
        inserted=(1, 2),
    )
    for size in range(40, 44)
)


def same(one: Sequence[Prompt], other: Sequence[Prompt]) -> bool:
    def rows(prompts: Sequence[Prompt]) -> list[Any]:
        return [
            [p.ids.dtype, *(getattr(p, field.name) for field in fields(p)[1:]), *p.ids]
            for p in prompts
        ]

    return rows(one) == rows(other)
