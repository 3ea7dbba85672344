import json
from pathlib import Path

from lce_core.benchmarks.short_context.data import TASKS, read_split
from lce_core.errors import DataError, UnavailableError
from tests.errors.files import write
from tests.support.cells import benchmark
from tests.support.data.short_context_rows import row_of, toy_request, write_rows
from tests.support.errors.provocations import Place, provokes
from tests.support.errors.provoked_cells import evaluate

provokes(UnavailableError, "eval_length 1: task piqa")(evaluate("short_context", 1, task="piqa"))


def piqa(folder: Path) -> None:
    read_split(TASKS["piqa"], "validation", {"piqa": folder})


@provokes(DataError, "validation.jsonl")
def _(place: Place) -> None:
    write_rows(place.folder / "validation.parquet", [row_of("piqa", 0)])
    piqa(write(place, "validation.jsonl", json.dumps(row_of("piqa", 0))))


provokes(DataError, "0")(lambda place: piqa(write(place, "valid-labels.lst", "0\n")))


@provokes(DataError, "valid-labels.lst: got 2")
def _(place: Place) -> None:
    write(place, "valid-labels.lst", "0\n1\n")
    row = {key: value for key, value in row_of("piqa", 0).items() if key != "label"}
    piqa(write(place, "valid.jsonl", json.dumps(row)))


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
