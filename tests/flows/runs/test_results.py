"""The table of `lce run` says where cells are missing, and marks the best only among the others."""

import io
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from flows.runs.results import show_results
from lce_core.study.plan import StudyPlan
from lce_core.study.study_file import parse_study
from tests.support.catalogs.holed_catalog import TARGET, Cell, written
from tests.support.studies import SMOKE

LENGTHS = [128, TARGET]


def table(home: Path, methods: list[Any], *benchmarks: str, seed: int | None = None) -> str:
    study = SMOKE | {
        "study": "study-0",
        "methods": methods,
        "benchmarks": [{"name": b, "profile": "tiny", "lengths": LENGTHS} for b in benchmarks],
        "seeds": [0, 1],
    }
    text = io.StringIO()
    plan = StudyPlan(parse_study(json.dumps(study), "test"), {}, ())
    show_results(plan, home, Console(file=text, width=200), seed)
    return text.getvalue()


def test_a_method_without_all_its_cells_has_no_number_and_is_never_the_best(tmp_path):
    values = {
        ("none", "perplexity"): (5.0, 11.58), ("none", "needle"): (1.0, 0.456),
        ("pi", "perplexity"): (6.5, 120.0), ("pi", "needle"): (1.0, 0.75),
        ("yarn", "perplexity"): (4.0, 3.0), ("yarn", "needle"): (1.0, 1.0),
    }  # fmt: skip
    cells = [
        Cell(
            method, method != "pi", seed, benchmark, benchmark, length,
            # Of yarn, which would be the best everywhere, the second seed is not done.
            "failed" if (method, seed, length) == ("yarn", 1, TARGET) else "done", value,
        )
        for (method, benchmark), pair in values.items()
        for length, value in zip(LENGTHS, pair, strict=True)
        for seed in (0, 1)
    ]  # fmt: skip
    written(tmp_path, [cells])
    methods = ["none", {"name": "pi", "tuned": True}, "yarn"]
    lines = table(tmp_path, methods, "perplexity", "needle").splitlines()
    assert [line.rstrip() for line in lines] == [
        "study-0: mean over 2 seeds; trained context 128; target context 256",
        "          perplexity         needle",
        "method           128    512     128   512",
        "none            5.00  11.58*   1.00* 0.46",
        "pi tuned        6.50    120    1.00* 0.75*",
        "yarn            4.00*   1/2    1.00*  1/2",
        "lower is better: perplexity",
        "higher is better: needle",
        "*: best of the column, among methods whose cells are all done.",
        "2/3: two of three cells are done, so there is no mean. The other cells and why:",
        "  lce sql \"FROM missing_cells WHERE study = 'study-0'\"",
        "tuned: fine-tuned at the target context. Others: frozen.",
        "~: approximate attention.",
    ]


def test_one_seed_alone_has_its_own_numbers_and_no_best(tmp_path):
    cells = [
        Cell(method, True, seed, "perplexity", task, LENGTHS[0], status, value + seed)
        for method, status in (("none", "done"), ("pi", "done"), ("yarn", "failed"))
        for task, value in (("code", 4.0), ("books", 16.0))[: 1 if method == "pi" else 2]
        for seed in (0, 1)
    ]
    written(tmp_path, [cells])
    text = table(tmp_path, ["none", "pi", "yarn"], "perplexity", seed=1)
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines[0] == "study-0: seed 1, one of 2; trained context 128; target context 256"
    assert [line.split()[:2] for line in lines[3:6]] == [
        ["none", "11.00"], ["pi", "5.00!"], ["yarn", "0/2"],
    ]  # fmt: skip
    assert "best" not in text
    assert any(line.startswith("!: ") for line in lines)  # pi lacks a task of the others
