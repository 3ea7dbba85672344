"""Provocations of the data that benchmarks read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lce_core.benchmarks._data import SUBSET, DataSet, read_rows, read_text
from lce_core.benchmarks._prompted.retrieval import long_streams
from lce_core.benchmarks._text.documents import held_out_documents, read_documents
from lce_core.benchmarks._text.windows import cut_windows
from lce_core.benchmarks.longbench._rows import longbench_rows
from lce_core.benchmarks.longbench.metrics import paragraph_share
from lce_core.benchmarks.many_shot.trec import drawn_questions, trec_questions
from lce_core.contracts.toy_text import streams
from tests.support.data.subsets import state_rows
from tests.support.errors.provocations import Place, Table
from tests.support.errors.provoked_cells import bare, evaluate

PROVOCATIONS = Table()
provokes = PROVOCATIONS
SET = DataSet("letters", ("*.txt",), "example.org")


def at(file: str, says: str) -> Callable[[Callable[[Place], object]], object]:
    return provokes(f"lce_core/benchmarks/{file}.py", says)


@at("_data", "no folder of this name")
def _(_: Place) -> None:
    SET.files({})


@at("_data", "got no {wanted}")
def _(place: Place) -> None:
    SET.files({"letters": place.folder})


@at("_data", "on the hub")
def _(_: Place) -> None:
    SET.files({"letters": Path(f"hub:nobody/nothing@{'0' * 40}")})


@at("_data", "a file that cannot be read")
def _(place: Place) -> None:
    (place.folder / "a.txt").mkdir()
    SET.digest({"letters": place.folder})


@at("_data", "readable {encoding} text")
def _(place: Place) -> None:
    file = place.folder / "a.txt"
    file.write_bytes(b"\xff")
    read_text(file)


def rows_of(place: Place, content: str) -> None:
    file = place.folder / "a.jsonl"
    file.write_text(content, encoding="utf-8")
    list(read_rows(file, ("question",)))


@at("_data", "no column")
def _(place: Place) -> None:
    rows_of(place, '{"answer": 1}')


@at("_data", "an object")
def _(place: Place) -> None:
    rows_of(place, "[1]")


@at("_data", "rows of JSON lines")
def _(place: Place) -> None:
    rows_of(place, "{")


@at("_data", "all {expected} rows")
def _(place: Place) -> None:
    (place.folder / "a.txt").write_text("one\n", encoding="utf-8")
    SET.require_rows({"letters": place.folder}, "a.txt", 1, 26)


@at("_data", "no numbers of rows")
def _(place: Place) -> None:
    (place.folder / SUBSET).write_text("[1]", encoding="utf-8")
    SET.recorded_name({"letters": place.folder})


@at("_text/benchmark", "no such domain")
def _(place: Place) -> None:
    evaluate("perplexity", 128, {"domains": ["poems"], "profile": "tiny"})(place)


@at("_text/documents", "tokens in the longest document")
def _(place: Place) -> None:
    (place.folder / "a.txt").write_text("short", encoding="utf-8")
    read_documents(bare(data_folders={"pg19": place.folder}), "pg19", at_least=100)


@at("_text/documents", "held-out document")
def _(_: Place) -> None:
    held_out_documents(bare(), at_least=10_000, max_tokens=None)


@at("_text/documents", "no text in")
def _(place: Place) -> None:
    (place.folder / "a.jsonl").write_text('{"body": "text"}', encoding="utf-8")
    read_documents(bare(data_folders={"pg19": place.folder}), "pg19")


@at("_text/windows", "of a window")
def _(_: Place) -> None:
    cut_windows(np.zeros(100, np.uint32), 128, 64)


@at("perplexity_documents", "no document that fills")
def _(place: Place) -> None:
    settings = {"domains": ["code"], "truncate": True, "min_document_tokens": 1000}
    evaluate("perplexity_documents", 2000, settings, task="code")(place)


@at("_prompted/retrieval", "around a needle")
def _(_: Place) -> None:
    long_streams(bare(held_out=streams(50)), 128)


def longbench(place: Place, **row: Any) -> None:
    whole = {"input": "i", "context": "c", "answers": ["a"], "all_classes": None, **row}
    (place.folder / "qasper.jsonl").write_text(json.dumps(whole), encoding="utf-8")
    longbench_rows("qasper", {"longbench": place.folder}, 1)


@at("longbench/_rows", "{_short(row[column])}")
def _(place: Place) -> None:
    longbench(place, context=None)


@at("longbench/_rows", "at least one text")
def _(place: Place) -> None:
    longbench(place, answers=[])


@at("longbench/_rows", "or null")
def _(place: Place) -> None:
    longbench(place, all_classes=[1])


@at("longbench/metrics", "Paragraph 15")
def _(_: Place) -> None:
    paragraph_share("3", "three")


def trec(place: Place, train: str, test: str | None = "NUM:date When ?\n") -> dict[str, Path]:
    (place.folder / "train.txt").write_text(train, encoding="latin-1")
    if test is not None:
        (place.folder / "test.txt").write_text(test, encoding="latin-1")
    state_rows(place.folder, {"train.txt": train.count("?"), "test.txt": 1})
    return {"trec": place.folder}


@at("many_shot/__init__", "evaluate longer contexts or fewer shots")
def _(place: Place) -> None:
    folders = trec(place, "".join(f"HUM:ind Who is {number} ?\n" for number in range(40)))
    settings = {"shots": [20], "num_questions": 1, "permutations": 1}
    evaluate("many_shot", 200, settings, data_folders=folders)(place)


@at("many_shot/trec", "a code such as")
def _(place: Place) -> None:
    trec_questions(trec(place, "NUM:date\n"))


@at("many_shot/trec", "both files")
def _(place: Place) -> None:
    trec_questions(trec(place, "HUM:ind Who ?\n", None))


@at("many_shot/trec", "{found} {what}")
def _(place: Place) -> None:
    drawn_questions(trec(place, "HUM:ind Who ?\n"), 2, 1, np.random.default_rng(0))
