"""Provocations of benchmarks: settings, and prompts that do not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lce_core.benchmarks import BENCHMARKS
from lce_core.benchmarks.long_eval.lines import published_prompts
from lce_core.benchmarks.needle.text import essay_tokens
from lce_core.benchmarks.ruler._documents import read_hotpot, read_squad
from lce_core.benchmarks.ruler._haystack import Haystack
from lce_core.contracts.benchmark_cases import Case, request_for
from tests.support.cells import benchmark
from tests.support.data.subsets import state_rows
from tests.support.errors.provocations import Place, Table
from tests.support.errors.provoked_cells import bare, evaluate

PROVOCATIONS = Table()
provokes = PROVOCATIONS


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
on("ruler/_token_form", "RULER's texts", "ruler", profile="tiny", sizes="v1")


at("passkey", "without any garbage")(evaluate("passkey", 200, {"num_samples": 2}))
at("long_eval/lines", "lines and the answer")(evaluate("long_eval", 300, {"num_samples": 1}))


@at("needle/text", "without any haystack")
def _(place: Place) -> None:
    (place.folder / "a.txt").write_text("An essay. " * 50, encoding="utf-8")
    evaluate("needle", 100, data_folders={"essays": place.folder})(place)


@at("needle/text", "a token to leak")
def _(place: Place) -> None:
    (place.folder / "a.txt").write_text("An essay. " * 50, encoding="utf-8")
    folders = {"essays": place.folder}
    evaluate("needle", 900, {"bos_leak": True}, data_folders=folders)(place)


@at("needle/text", "the text of the essays")
def _(place: Place) -> None:
    (place.folder / "a.txt").write_text(" ", encoding="utf-8")
    essay_tokens(bare(data_folders={"essays": place.folder}))


def published(place: Place, length: int = 4096, name: str = "7_lines.jsonl", **row: Any) -> None:
    whole = {"prompt": "x" * 900, "random_idx": ["a", 0], "expected_number": 3, "num_lines": 7}
    content = json.dumps({**whole, **row}) if row or length < 4096 else ""
    (place.folder / name).write_text(content, encoding="utf-8")
    state_rows(place.folder, {name: 1})
    published_prompts(replace(bare(data_folders={"long_eval": place.folder}), eval_length=length))


@at("long_eval/lines", "and its answers take")
def _(place: Place) -> None:
    published(place, length=600)


@at("long_eval/lines", "a name without a number")
def _(place: Place) -> None:
    published(place, name="many_lines.jsonl")


@at("long_eval/lines", "a key with its position")
def _(place: Place) -> None:
    published(place, num_lines=1)


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


at("ruler/_prompts", "smallest prompts")(evaluate("ruler", 129, {"num_samples": 1}, task="vt"))


@at("_prompted/filling", "with the {answer_tokens} of an")
def _(_: Place) -> None:
    passkey = benchmark("passkey", profile="tiny")
    prompts = passkey.prompts(bare())  # type: ignore[attr-defined]
    passkey.require_filled(replace(bare(), eval_length=2000), prompts)  # type: ignore[attr-defined]


@at("_prompted/benchmark", "and its answer")
def _(_: Place) -> None:
    benchmark("passkey").fitted(bare(), "a line " * 100)  # type: ignore[attr-defined]


@provokes("lce_core/contracts/benchmark_cases.py", "tokens that hold no prompt")
def _(_: Place) -> None:
    class Endless(BENCHMARKS.load("passkey")):  # type: ignore[misc]
        def unavailable(self, *_: object) -> str:
            return "needs 100,000 tokens"

    request_for(Case(Endless, {}, "fast", dict), "single")
