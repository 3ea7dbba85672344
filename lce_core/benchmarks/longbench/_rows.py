"""Rows of a LongBench task, from the data set `longbench`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lce_core.benchmarks import DataSet, Table, read_rows
from lce_core.errors import DataError
from lce_core.store.identity import fingerprint

_COLUMNS = ("input", "context", "answers", "all_classes")
_REMEDY = "use the data set in its published form"


@dataclass(frozen=True)
class LongBenchRow:
    """One row of a task's file: a document (`context`), a question and its reference answers."""

    context: str
    given: str
    """The column `input`: a question, an instruction or the start of a line of code."""
    answers: tuple[str, ...]
    classes: tuple[str, ...]

    @property
    def document(self) -> str:
        """Identifies the context by 12 hexadecimal digits of a hash."""
        return fingerprint([self.context])[:12]


def data_set(task: str) -> DataSet:
    return DataSet(
        "longbench",
        (f"{task}.jsonl",),
        "huggingface.co/datasets/zai-org/LongBench (data.zip), one TASK.jsonl for each task",
        (Table(task, "test"),),
    )


def longbench_rows(task: str, folders: Mapping[str, Path], num_rows: int) -> list[LongBenchRow]:
    """Return all rows of a task in the order of its file, which published `num_rows`."""
    (file,) = data_set(task).files(folders)
    rows = [
        _row(row, f"{file}: row {number}")
        for number, row in enumerate(read_rows(file, _COLUMNS), start=1)
    ]
    data_set(task).require_rows(folders, file.name, len(rows), num_rows)
    return rows


def _row(row: dict[str, Any], place: str) -> LongBenchRow:
    for column in ("input", "context"):
        if not isinstance(row[column], str):
            raise DataError(f"{place}: column {column!r}", _short(row[column]), "text", _REMEDY)
    answers, classes = row["answers"], row["all_classes"]
    if not _are_texts(answers) or not answers:
        raise DataError(
            f"{place}: column 'answers'", _short(answers), "a list of at least one text", _REMEDY
        )
    if classes is not None and not _are_texts(classes):
        raise DataError(
            f"{place}: column 'all_classes'", _short(classes), "a list of texts, or null", _REMEDY
        )
    return LongBenchRow(row["context"], row["input"], tuple(answers), tuple(classes or ()))


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _short(value: object) -> str:
    return repr(value)[:80]
