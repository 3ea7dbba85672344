"""The printed table of training budgets has the numbers that are computed by hand."""

import re
from pathlib import Path
from typing import Any

from flows.terminal import Terminal
from lce.views.plan_view import training_table
from tests.support.studies import TINY, compiled

STUDY: dict[str, Any] = TINY | {
    "target_context": 512,
    "train_tokens": 20480,
    "methods": [
        "none",
        {"name": "none", "tuned": True},
        {"name": "yarn", "tuned": True, "train_length": 128, "train_positions": "pose"},
    ],
    "training": {"learning_rate": 1.0e-3, "tokens_per_step": 2048},
    "benchmarks": [{"name": "perplexity", "profile": "tiny", "lengths": [128]}],
    "seeds": [0, 1],
}
PER_TOKEN = 6 * (2 * (4 * 96 * 96 + 3 * 96 * 256) + 96 * 392)
"""FLOPs of training toy_llama's weights on one token, without attention."""


def rows(library: Path, **changes: Any) -> list[list[str]]:
    table = training_table(compiled({**STUDY, **changes}, library))
    if table is None:
        return []
    console = Terminal(width=80)
    with console.capture() as captured:
        console.print(table)
    return [re.split(r" {2,}", line.strip()) for line in captured.get().splitlines()]


def attention(length: int) -> int:
    return 3 * 4 * 2 * 96 * length // 2


def test_it_shows_tokens_flops_and_how_well_they_match(library):
    full, short = PER_TOKEN + attention(512), PER_TOKEN + attention(128)
    steps = round(10 * full / short)
    assert steps == 13
    share = f"{100 * 1.3 * short / full:.1f} %"
    assert rows(library, match="flops") == [
        ["trained method", "training tokens", "FLOPs", "of the budget"],
        ["none tuned", "20.5k", f"{20480 * full:.3g}", "100.0 %"],
        ["yarn tuned", "26.6k", f"{13 * 2048 * short:.3g}", share],
    ]


def test_equal_tokens_are_shown_only_if_their_flops_differ(library):
    shown = rows(library)
    assert shown[0] == ["trained method", "training tokens", "FLOPs"]
    assert [row[1] for row in shown[1:]] == ["20.5k", "20.5k"]
    assert shown[1][2] != shown[2][2]
    assert rows(library, methods=STUDY["methods"][:2]) == []
    assert rows(library, methods=["none"]) == []
