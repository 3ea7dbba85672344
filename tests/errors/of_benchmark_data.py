"""Provocations of the data that benchmarks read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from lce_core.benchmarks._data import DataSet, read_rows, read_text
from lce_core.benchmarks._text.documents import read_documents
from lce_core.benchmarks.longbench._rows import longbench_rows
from lce_core.benchmarks.many_shot.trec import drawn_questions, trec_questions
from lce_core.errors import DataError, UnavailableError
from tests.support.data.subsets import state_rows
from tests.support.errors.provocations import Place, Table
from tests.support.errors.provoked_cells import bare, evaluate

PROVOCATIONS = Table()
provokes = PROVOCATIONS
SET = DataSet("letters", ("*.txt",), "example.org")


provokes(UnavailableError, "nobody/nothing")(
    lambda _: SET.files({"letters": Path(f"hub:nobody/nothing@{'0' * 40}")})
)


@provokes(DataError, "a.txt")
def _(place: Place) -> None:
    (place.folder / "a.txt").mkdir()
    SET.digest({"letters": place.folder})


@provokes(DataError, "a.txt")
def _(place: Place) -> None:
    file = place.folder / "a.txt"
    file.write_bytes(b"\xff")
    read_text(file)


def rows_of(place: Place, content: str) -> None:
    file = place.folder / "a.jsonl"
    file.write_text(content, encoding="utf-8")
    list(read_rows(file, ("question",)))


provokes(DataError, "question")(lambda place: rows_of(place, '{"answer": 1}'))
provokes(DataError, "a.jsonl: row 1: got list")(lambda place: rows_of(place, "[1]"))
provokes(DataError, "a.jsonl")(lambda place: rows_of(place, "{"))


@provokes(UnavailableError, "data set 'pg19': got 6")
def _(place: Place) -> None:
    (place.folder / "a.txt").write_text("short", encoding="utf-8")
    read_documents(bare(data_folders={"pg19": place.folder}), "pg19", at_least=100)


@provokes(DataError, "body")
def _(place: Place) -> None:
    (place.folder / "a.jsonl").write_text('{"body": "text"}', encoding="utf-8")
    read_documents(bare(data_folders={"pg19": place.folder}), "pg19")


@provokes(UnavailableError, "no document that fills")
def _(place: Place) -> None:
    settings = {"domains": ["code"], "truncate": True, "min_document_tokens": 1000}
    evaluate("perplexity_documents", 2000, settings, task="code")(place)


def longbench(place: Place, **row: Any) -> None:
    whole = {"input": "i", "context": "c", "answers": ["a"], "all_classes": None, **row}
    (place.folder / "qasper.jsonl").write_text(json.dumps(whole), encoding="utf-8")
    longbench_rows("qasper", {"longbench": place.folder}, 1)


provokes(DataError, "'context': got None")(lambda place: longbench(place, context=None))
provokes(DataError, "'answers': got []")(lambda place: longbench(place, answers=[]))
provokes(DataError, "'all_classes': got [1]")(lambda place: longbench(place, all_classes=[1]))


def trec(place: Place, train: str, test: str | None = "NUM:date When ?\n") -> dict[str, Path]:
    (place.folder / "train.txt").write_text(train, encoding="latin-1")
    if test is not None:
        (place.folder / "test.txt").write_text(test, encoding="latin-1")
    state_rows(place.folder, {"train.txt": train.count("?"), "test.txt": 1})
    return {"trec": place.folder}


@provokes(UnavailableError, "eval_length: got 200")
def _(place: Place) -> None:
    folders = trec(place, "".join(f"HUM:ind Who is {number} ?\n" for number in range(40)))
    settings = {"shots": [20], "num_questions": 1, "permutations": 1}
    evaluate("many_shot", 200, settings, data_folders=folders)(place)


provokes(DataError, "NUM:date")(lambda place: trec_questions(trec(place, "NUM:date\n")))
provokes(UnavailableError, "data set 'trec': got 1")(
    lambda place: drawn_questions(trec(place, "HUM:ind Who ?\n"), 2, 1, np.random.default_rng(0))
)
