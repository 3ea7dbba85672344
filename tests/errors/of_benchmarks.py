"""Provocations of benchmarks: settings, and prompts that do not fit."""

from __future__ import annotations

from lce_core.benchmarks import BENCHMARKS
from lce_core.benchmarks.needle.text import essay_tokens
from lce_core.benchmarks.ruler._documents import read_hotpot
from lce_core.benchmarks.ruler._haystack import Haystack
from lce_core.contracts.benchmark_cases import Case, request_for
from lce_core.errors import DataError, UnavailableError
from tests.support.cells import benchmark
from tests.support.errors.provocations import Place, provokes
from tests.support.errors.provoked_cells import bare


@provokes(UnavailableError, "data set 'essays")
def _(place: Place) -> None:
    (place.folder / "a.txt").write_text(" ", encoding="utf-8")
    essay_tokens(bare(data_folders={"essays": place.folder}))


@provokes(DataError, "hotpot_dev_distractor_v1.json")
def _(place: Place) -> None:
    file = place.folder / "hotpot_dev_distractor_v1.json"
    file.write_text("[]", encoding="utf-8")
    read_hotpot({"hotpotqa": place.folder})


provokes(UnavailableError, "data set 'essays")(lambda _: Haystack(" ", "data set 'essays'"))


provokes(UnavailableError, "eval_length: got 256")(
    lambda _: benchmark("passkey").fitted(bare(), "a line " * 100)
)


@provokes(UnavailableError, "single: got no prompt at any length up to 5000")
def _(_: Place) -> None:
    class Endless(BENCHMARKS.load("passkey")):  # type: ignore[misc]
        def unavailable(self, *_: object) -> str:
            return "needs 100,000 tokens"

    request_for(Case(Endless, {}, "fast", dict), "single")
