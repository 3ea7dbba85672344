"""Provocations of benchmarks and their data sets."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lce_core.benchmarks import CellRequest
from lce_core.benchmarks._data import DataSet, read_rows, read_text
from lce_core.benchmarks._prompted.retrieval import long_streams
from lce_core.benchmarks._text.documents import held_out_documents, read_documents
from lce_core.benchmarks._text.windows import cut_windows
from lce_core.benchmarks.long_eval.lines import published_prompts
from lce_core.benchmarks.longbench._rows import longbench_rows
from lce_core.benchmarks.longbench.metrics import paragraph_share
from lce_core.benchmarks.many_shot.trec import drawn_questions, trec_questions
from lce_core.benchmarks.needle.text import essay_tokens
from lce_core.benchmarks.ruler._documents import read_hotpot, read_squad
from lce_core.benchmarks.ruler._haystack import Haystack
from lce_core.benchmarks.short_context.data import TASKS, read_split
from lce_core.benchmarks.short_context.lm_eval_model import ExtendedLM
from tests.support.cells import benchmark, request, streams
from tests.support.provocations import Place, Table
from tests.support.short_context_rows import instances, row_of, toy_request, write_rows

PROVOCATIONS = Table()
provokes = PROVOCATIONS
SET = DataSet("letters", ("*.txt",), "example.org")


def evaluate(
    name: str,
    length: int,
    settings: dict[str, Any] | None = None,
    **changes: Any,
) -> Callable[[Place], object]:
    """A cell that cannot be computed."""

    def call(_: Place) -> object:
        asked = benchmark(name, **(settings or {}))
        return asked.evaluate(request(asked, length, **changes))

    return call


def bare(task: str = "code", **changes: Any) -> CellRequest:
    """A request without a model."""
    return request(benchmark("perplexity"), 256, task=task, **changes)


def on(file: str, says: str, name: str, **settings: Any) -> None:
    """Registers settings that do not fit together."""
    provokes(f"lce_core/benchmarks/{file}.py", says)(lambda _: benchmark(name, **settings))


def at(file: str, says: str) -> Callable[[Callable[[Place], object]], object]:
    return provokes(f"lce_core/benchmarks/{file}.py", says)


on("_base", "a profile that", "longbench", profile="tiny")
on("_text/benchmark", "neither domains", "perplexity", domains=[])
on(
    "long_eval/__init__",
    "published cases with profile tiny",
    "long_eval",
    cases="published",
    profile="tiny",
)
on("long_eval/__init__", "50 a file", "long_eval", cases="published", num_samples=5)
on("many_shot/__init__", "a name of its own", "many_shot", shots=[5, 5])
on("needle/__init__", "essays, needles or bos_leak", "needle", profile="tiny", bos_leak=True)
on("perplexity_documents", "without min_document_tokens", "perplexity_documents", truncate=True)
on("ruler/__init__", "RULER's texts", "ruler", profile="tiny", sizes="v1")


# Files of data sets


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


# Text


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


# Retrieval


at("passkey", "without any garbage")(evaluate("passkey", 200, {"num_samples": 2}))
at("long_eval/lines", "lines and the answer")(evaluate("long_eval", 300, {"num_samples": 1}))


@at("needle/text", "without any haystack")
def _(place: Place) -> None:
    (place.folder / "a.txt").write_text("An essay. " * 50, encoding="utf-8")
    evaluate("needle", 100, data_folders={"essays": place.folder})(place)


@at("needle/text", "a token to leak")
def _(place: Place) -> None:
    (place.folder / "a.txt").write_text("An essay. " * 50, encoding="utf-8")
    tokenizer = bare().tokenizer
    tokenizer.bos_token = None
    folders = {"essays": place.folder}
    settings = {"bos_leak": True}
    evaluate("needle", 900, settings, data_folders=folders, tokenizer=tokenizer)(place)


@at("needle/text", "the text of the essays")
def _(place: Place) -> None:
    (place.folder / "a.txt").write_text(" ", encoding="utf-8")
    essay_tokens(bare(data_folders={"essays": place.folder}))


def published(place: Place, length: int = 4096, name: str = "7_lines.jsonl", **row: Any) -> None:
    whole = {"prompt": "x" * 900, "random_idx": ["a", 0], "expected_number": 3, "num_lines": 7}
    content = json.dumps({**whole, **row}) if row or length < 4096 else ""
    (place.folder / name).write_text(content, encoding="utf-8")
    published_prompts(replace(bare(data_folders={"long_eval": place.folder}), eval_length=length))


@at("long_eval/lines", "published cases that fit")
def _(place: Place) -> None:
    published(place, length=600)


@at("long_eval/lines", "a name without a number")
def _(place: Place) -> None:
    published(place, name="many_lines.jsonl")


@at("long_eval/lines", "no rows")
def _(place: Place) -> None:
    published(place)


@at("long_eval/lines", "a key with its position")
def _(place: Place) -> None:
    published(place, num_lines=1)


# LongBench


def longbench(place: Place, **row: Any) -> None:
    whole = {"input": "i", "context": "c", "answers": ["a"], "all_classes": None, **row}
    content = json.dumps(whole) if row else ""
    (place.folder / "qasper.jsonl").write_text(content, encoding="utf-8")
    longbench_rows("qasper", {"longbench": place.folder})


@at("longbench/_rows", "no rows")
def _(place: Place) -> None:
    longbench(place)


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


# TREC


def trec(place: Place, train: str, test: str | None = "NUM:date When ?\n") -> dict[str, Path]:
    (place.folder / "train.txt").write_text(train, encoding="latin-1")
    if test is not None:
        (place.folder / "test.txt").write_text(test, encoding="latin-1")
    return {"trec": place.folder}


@at("many_shot/__init__", "evaluate longer contexts or fewer shots")
def _(place: Place) -> None:
    folders = trec(place, "".join(f"HUM:ind Who is {number} ?\n" for number in range(40)))
    settings = {"shots": [20], "num_questions": 1, "permutations": 1}
    evaluate("many_shot", 200, settings, data_folders=folders)(place)


@at("many_shot/trec", "no questions")
def _(place: Place) -> None:
    trec_questions(trec(place, "\n"))


@at("many_shot/trec", "a code such as")
def _(place: Place) -> None:
    trec_questions(trec(place, "NUM:date\n"))


@at("many_shot/trec", "both files")
def _(place: Place) -> None:
    trec_questions(trec(place, "HUM:ind Who ?\n", None))


@at("many_shot/trec", "{found} {what}")
def _(place: Place) -> None:
    drawn_questions(trec(place, "HUM:ind Who ?\n"), 2, 1, np.random.default_rng(0))


# RULER


@at("ruler/_documents", "{type(error).__name__}")
def _(place: Place) -> None:
    (place.folder / "dev-v2.0.json").write_text('{"data": [{"title": "x"}]}', encoding="utf-8")
    read_squad({"squad": place.folder})


@at("ruler/_documents", "no question with an answer")
def _(place: Place) -> None:
    file = place.folder / "hotpot_dev_distractor_v1.json"
    file.write_text("[]", encoding="utf-8")
    read_hotpot({"hotpotqa": place.folder})


@at("ruler/_haystack", "no text")
def _(_: Place) -> None:
    Haystack(" ", "data set 'essays'")


at("ruler/_fitting", "smallest prompts")(evaluate("ruler", 129, {"num_samples": 1}, task="vt"))


# Short context


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


@at("short_context/lm_eval_model", "whole texts")
def _(_: Place) -> None:
    harness().loglikelihood_rolling([])


@at("short_context/lm_eval_model", "without special tokens")
def _(_: Place) -> None:
    lm = harness()
    lm.tokenizer.bos_token = lm.tokenizer.eos_token = None
    _id = lm.prefix_token_id


@at("short_context/lm_eval_model", "greedy decoding")
def _(_: Place) -> None:
    harness().generate_until(instances("generate_until", [("a", {"do_sample": True})]))


@at("short_context/lm_eval_model", "leaves no room")
def _(_: Place) -> None:
    harness(16).generate_until(instances("generate_until", [("a", {"until": ["\n"]})]))


@at("short_context/lm_eval_tasks", "rows with the columns")
def _(place: Place) -> None:
    rows = [{**row_of("piqa", 0), "sol1": None}]
    write_rows(place.folder / "validation.parquet", rows)
    request_ = toy_request(task="piqa", data_folders={"piqa": place.folder})
    benchmark("short_context").evaluate(request_)
