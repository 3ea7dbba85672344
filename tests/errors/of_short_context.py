"""Provocations of the short-context suite."""

from __future__ import annotations

import json

from lce_core.benchmarks.short_context.data import TASKS, read_split
from lce_core.errors import DataError, UnavailableError
from tests.support.cells import benchmark
from tests.support.data.short_context_rows import row_of, toy_request, write_rows
from tests.support.errors.provocations import Place, provokes
from tests.support.errors.provoked_cells import evaluate

provokes(UnavailableError, "eval_length 1: task piqa")(evaluate("short_context", 1, task="piqa"))


def piqa(place: Place) -> None:
    read_split(TASKS["piqa"], "validation", {"piqa": place.folder})


@provokes(DataError, "validation.jsonl")
def _(place: Place) -> None:
    write_rows(place.folder / "validation.parquet", [row_of("piqa", 0)])
    row = json.dumps(row_of("piqa", 0))
    (place.folder / "validation.jsonl").write_text(row, encoding="utf-8")
    piqa(place)


@provokes(DataError, "0")
def _(place: Place) -> None:
    (place.folder / "valid-labels.lst").write_text("0\n", encoding="utf-8")
    piqa(place)


@provokes(DataError, "valid-labels.lst: got 2")
def _(place: Place) -> None:
    (place.folder / "valid-labels.lst").write_text("0\n1\n", encoding="utf-8")
    row = {key: value for key, value in row_of("piqa", 0).items() if key != "label"}
    (place.folder / "valid.jsonl").write_text(json.dumps(row), encoding="utf-8")
    piqa(place)


@provokes(UnavailableError, "virology")
def _(place: Place) -> None:
    write_rows(place.folder / "anatomy" / "test-0.parquet", [row_of("mmlu", 0)])
    task = TASKS["mmlu"]
    read_split(task, "test", {task.splits["test"].name: place.folder}, "virology")


@provokes(DataError, "data of task 'piqa'")
def _(place: Place) -> None:
    rows = [{**row_of("piqa", 0), "sol1": None}]
    write_rows(place.folder / "validation.parquet", rows)
    request_ = toy_request(task="piqa", data_folders={"piqa": place.folder})
    benchmark("short_context").evaluate(request_)
