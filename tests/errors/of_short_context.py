"""Provocations of the short-context suite."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from lce_core.benchmarks.short_context.data import TASKS, read_split
from lce_core.benchmarks.short_context.lm_eval_model import ExtendedLM
from tests.support.cells import benchmark
from tests.support.data.short_context_rows import instances, row_of, toy_request, write_rows
from tests.support.errors.provocations import Place, Table
from tests.support.errors.provoked_cells import evaluate

PROVOCATIONS = Table()
provokes = PROVOCATIONS


def at(file: str, says: str) -> Callable[[Callable[[Place], object]], object]:
    return provokes(f"lce_core/benchmarks/{file}.py", says)


at("short_context/__init__", "{reason}")(evaluate("short_context", 1, task="piqa"))


def piqa(place: Place) -> None:
    read_split(TASKS["piqa"], "validation", {"piqa": place.folder})


@at("short_context/data", "in two places")
def _(place: Place) -> None:
    write_rows(place.folder / "validation.parquet", [row_of("piqa", 0)])
    row = json.dumps(row_of("piqa", 0))
    (place.folder / "validation.jsonl").write_text(row, encoding="utf-8")
    piqa(place)


@at("short_context/data", "files of questions")
def _(place: Place) -> None:
    (place.folder / "valid-labels.lst").write_text("0\n", encoding="utf-8")
    piqa(place)


@at("short_context/data", "labels for {len(rows)} questions")
def _(place: Place) -> None:
    (place.folder / "valid-labels.lst").write_text("0\n1\n", encoding="utf-8")
    row = {key: value for key, value in row_of("piqa", 0).items() if key != "label"}
    (place.folder / "valid.jsonl").write_text(json.dumps(row), encoding="utf-8")
    piqa(place)


@at("short_context/data", "a folder for each subject")
def _(place: Place) -> None:
    write_rows(place.folder / "anatomy" / "test-0.parquet", [row_of("mmlu", 0)])
    task = TASKS["mmlu"]
    read_split(task, "test", {task.splits["test"].name: place.folder}, "virology")


def harness(length: int = 1024, **changes: Any) -> ExtendedLM:
    return ExtendedLM(toy_request(length, **changes), new_tokens=16)


@at("short_context/lm_eval_model", "without special tokens")
def _(_: Place) -> None:
    lm = harness()
    lm.tokenizer.bos_token = lm.tokenizer.eos_token = None
    _id = lm.prefix_token_id


@at("short_context/lm_eval_model", "leaves no room")
def _(_: Place) -> None:
    harness(16).generate_until(instances("generate_until", [("a", {"until": ["\n"]})]))


@at("short_context/lm_eval_tasks", "rows with the columns")
def _(place: Place) -> None:
    rows = [{**row_of("piqa", 0), "sol1": None}]
    write_rows(place.folder / "validation.parquet", rows)
    request_ = toy_request(task="piqa", data_folders={"piqa": place.folder})
    benchmark("short_context").evaluate(request_)
