"""Provocations of benchmarks: settings, and prompts that do not fit."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from lce_core.benchmarks import BENCHMARKS
from lce_core.benchmarks.long_eval.lines import published_prompts
from lce_core.benchmarks.needle.text import essay_tokens
from lce_core.benchmarks.ruler._documents import read_hotpot
from lce_core.benchmarks.ruler._haystack import Haystack
from lce_core.contracts.benchmark_cases import Case, request_for
from lce_core.errors import DataError, SpecError, UnavailableError
from tests.support.cells import benchmark
from tests.support.data.subsets import state_rows
from tests.support.errors.provocations import Place, Table
from tests.support.errors.provoked_cells import bare, evaluate

PROVOCATIONS = Table()
provokes = PROVOCATIONS


def on(value: str, name: str, **settings: Any) -> None:
    """Add settings of a benchmark that do not fit together."""
    provokes(SpecError, value)(lambda _: benchmark(name, **settings))


on("test.profile: got 'tiny", "longbench", profile="tiny")
on("test.domains", "perplexity", domains=[])
on("test.cases", "long_eval", cases="published", profile="tiny")
on("test.num_samples: got 5", "long_eval", cases="published", num_samples=5)
on("[5, 5]", "many_shot", shots=[5, 5])
on("test.profile", "needle", profile="tiny", bos_leak=True)
on("test.min_document_tokens", "perplexity_documents", truncate=True)
on("test.profile", "ruler", profile="tiny", sizes="v1")
provokes(UnavailableError, "eval_length: got 200")(evaluate("passkey", 200, {"num_samples": 2}))


@provokes(UnavailableError, "eval_length: got 100")
def _(place: Place) -> None:
    (place.folder / "a.txt").write_text("An essay. " * 50, encoding="utf-8")
    evaluate("needle", 100, data_folders={"essays": place.folder})(place)


@provokes(UnavailableError, "data set 'essays")
def _(place: Place) -> None:
    (place.folder / "a.txt").write_text(" ", encoding="utf-8")
    essay_tokens(bare(data_folders={"essays": place.folder}))


def published(place: Place, length: int = 4096, name: str = "7_lines.jsonl", **row: Any) -> None:
    whole = {"prompt": "x" * 900, "random_idx": ["a", 0], "expected_number": 3, "num_lines": 7}
    content = json.dumps({**whole, **row}) if row or length < 4096 else ""
    (place.folder / name).write_text(content, encoding="utf-8")
    state_rows(place.folder, {name: 1})
    published_prompts(replace(bare(data_folders={"long_eval": place.folder}), eval_length=length))


provokes(UnavailableError, "eval_length: got 600")(lambda place: published(place, length=600))
provokes(DataError, "7_lines.jsonl")(lambda place: published(place, num_lines=1))


@provokes(DataError, "hotpot_dev_distractor_v1.json")
def _(place: Place) -> None:
    file = place.folder / "hotpot_dev_distractor_v1.json"
    file.write_text("[]", encoding="utf-8")
    read_hotpot({"hotpotqa": place.folder})


provokes(UnavailableError, "data set 'essays")(lambda _: Haystack(" ", "data set 'essays'"))


@provokes(UnavailableError, "2,000 tokens")
def _(_: Place) -> None:
    passkey = benchmark("passkey", profile="tiny")
    prompts = passkey.prompts(bare())  # type: ignore[attr-defined]
    passkey.require_filled(replace(bare(), eval_length=2000), prompts)  # type: ignore[attr-defined]


provokes(UnavailableError, "eval_length: got 256")(
    lambda _: benchmark("passkey").fitted(bare(), "a line " * 100)
)


@provokes(UnavailableError, "single: got 5000")
def _(_: Place) -> None:
    class Endless(BENCHMARKS.load("passkey")):  # type: ignore[misc]
        def unavailable(self, *_: object) -> str:
            return "needs 100,000 tokens"

    request_for(Case(Endless, {}, "fast", dict), "single")
