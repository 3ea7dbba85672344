"""A small store with made-up results, for tests of the catalog and the report. Never shipped.

Everything goes through `Store.ensure`, as in a real run. One study, `sample`: trained at 128
tokens, target 512, evaluated up to 1024; it has done, failed, missing and unavailable cells.
"""

import contextlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lce_core.errors import DataError, NonFiniteError, UnavailableError
from lce_core.store.artifacts import Attempt, Store
from lce_core.store.cell_tables import SAMPLES, SAMPLES_FILE, TOKEN_NLL, TOKEN_NLL_FILE
from lce_core.store.steps import Step
from tests.support.free_steps import free_step, planned_cell, planned_training

STUDY = "sample"
BASE = "toy_llama"
TRAINED, TARGET = 128, 512
LENGTHS = (128, 256, 512, 1024)
UNITS = {
    "perplexity": ("perplexity", "perplexity", False),
    "nll_by_position": ("nats", "nll", False),
    "needle": ("accuracy", "accuracy", True),
    "passkey": ("accuracy", "accuracy", True),
}


@dataclass(frozen=True)
class Method:
    """A row of the study and how its made-up scores behave."""

    label: str
    frozen: bool
    exact: bool
    decay: float
    """How fast perplexity grows beyond the trained context."""
    recall: float
    """Share of retrieval left per doubling beyond it."""


METHODS = (
    Method("none", True, True, 1.5, 0.05),
    Method("pi", True, True, 0.9, 0.3),
    Method("pi", False, True, 0.25, 0.7),
    Method("ntk_32k", False, True, 0.06, 0.95),
    Method("yarn", False, True, 0.05, 0.9),
    Method("self_extend", True, False, 0.1, 0.92),
    Method("lm_infinite", True, False, 0.02, 0.2),
)


def compared(
    entry: int | None,
    text: str,
    method: tuple[str, bool],
    benchmark: str,
    length: int,
    expected: str = "better",
    other: tuple[str, bool] = ("none", True),
    margin: float | None = None,
) -> dict[str, Any]:
    """A comparison that a plan expects; methods are (label, frozen)."""
    return {
        "entry": entry,
        "text": text,
        "base_model": BASE,
        "method": method[0],
        "frozen": method[1],
        "expected": expected,
        "margin": margin,
        "other_method": other[0],
        "other_frozen": other[1],
        "benchmark": benchmark,
        "eval_length": length,
    }


class Study:
    """Builds the store and the plan side by side."""

    def __init__(self, store: Store, seeds: tuple[int, ...]) -> None:
        self.store, self.seeds = store, seeds
        self.cells: list[dict[str, Any]] = []
        self.trainings: list[dict[str, Any]] = []
        self.steps: list[str] = []

    def build(self) -> None:
        rows = free_step("rows", "rows", {"tokens": 4096}, {})
        self.steps.append(rows.id)
        self.store.ensure(rows, _write_rows, {})
        bases = {seed: self._training("base", None, seed, {"rows": rows}) for seed in self.seeds}
        for method in METHODS:
            for seed in self.seeds:
                weights = bases[seed]
                if not method.frozen:
                    weights = self._training(
                        "finetune", method.label, seed, {"rows": rows, "base": weights}
                    )
                for benchmark in UNITS:
                    for length in LENGTHS:
                        if benchmark != "nll_by_position" or length in LENGTHS[-2:]:
                            self._cell(method, seed, benchmark, length, weights)
        self.store.studies.save_plan(STUDY, self.plan(), "sample.yaml")

    def plan(self) -> dict[str, Any]:
        return {
            "study": STUDY,
            "hypothesis": "Methods with exact attention keep retrieval & perplexity <beyond> 4x.",
            "expects": [
                compared(0, "yarn finds <needles>", ("yarn", False), "needle", length)
                for length in LENGTHS
            ]
            + [compared(1, "pi loses needles", ("pi", True), "needle", 1024, "worse")]
            + [
                compared(
                    None,
                    f"{one.label} is not worse",
                    (one.label, one.frozen),
                    benchmark,
                    TRAINED,
                    "not worse",
                    margin=0.02,
                )
                for benchmark in ("perplexity", "passkey")
                for one in METHODS[1:]
            ],
            "target_context": TARGET,
            "base_contexts": {BASE: TRAINED},
            "cells": self.cells,
            "steps": self.steps,
            "kinds": {run["checkpoint"]: run["kind"] for run in self.trainings},
            "trainings": self.trainings,
            "choices": [],
            "plugins": [],
        }

    def _training(
        self, kind: str, method: str | None, seed: int, parents: Mapping[str, Step]
    ) -> Step:
        name = f"{BASE}-{method or 'base'}-s{seed}"
        step = free_step(kind, name, {"seed": seed, "method": method}, parents)
        self.steps.append(step.id)
        self.trainings.append(planned_training(step, method, seed, BASE))
        if method == "ntk_32k" and seed == 1:
            return step  # never run: its cells wait
        with contextlib.suppress(DataError):
            self.store.ensure(step, _write_training, {"device": "cpu"})
        return step

    def _cell(self, method: Method, seed: int, benchmark: str, length: int, weights: Step) -> None:
        state = "frozen" if method.frozen else "tuned"
        spec = {"method": method.label, "benchmark": benchmark, "length": length, "seed": seed}
        name = f"{method.label}-{state}-{benchmark}-{length}-s{seed}"
        step = free_step("cell", name, spec, {"model": weights})
        reason = None
        if method.label == "pi" and method.frozen and length > TARGET:
            reason = f"eval length {length} exceeds the {TARGET} tokens that pi supports"
        if reason is None:
            self.steps.append(step.id)
        self.cells.append(
            planned_cell(
                step,
                weights,
                reason,
                base_model=BASE,
                method=method.label,
                frozen=method.frozen,
                exact_attention=method.exact,
                seed=seed,
                benchmark=benchmark,
                task="stdlib" if benchmark == "perplexity" else benchmark,
                eval_length=length,
            )
        )
        skipped = method.label == "self_extend" and (seed, benchmark, length) == (0, "needle", 512)
        if reason or skipped or self.store.record(weights) is None:
            return
        with contextlib.suppress(NonFiniteError, UnavailableError):
            self.store.ensure(step, lambda attempt: write_cell(attempt, method), {"device": "cpu"})


def sample_store(home: Path, seeds: tuple[int, ...] = (0, 1, 2)) -> Store:
    store = Store(home)
    store.prepare()
    Study(store, seeds).build()
    return store


def write_cell(attempt: Attempt, method: Method) -> dict[str, Any]:
    """Writes a cell's files and returns its result, as the real evaluation does."""
    spec = attempt.step.spec
    benchmark, length, seed = spec["benchmark"], spec["length"], spec["seed"]
    if (method.label, method.frozen, seed, benchmark, length) == (
        "yarn", False, 2, "passkey", 1024,
    ):  # fmt: skip
        raise NonFiniteError("sample 3", "NaN <script>alert(1)</script>", "a number", "look")
    if (method.label, benchmark, length) == ("lm_infinite", "needle", 1024) and seed == 2:
        raise UnavailableError("prompt", "1030 tokens", "1024", "cut")
    doublings = max(0.0, math.log2(length / TRAINED))
    jitter = 1 + 0.03 * math.sin(7 * seed + length + len(method.label))
    asked: list[dict[str, Any]] = []
    bins: list[dict[str, Any]] = []
    unit, metric, higher = UNITS[benchmark]
    if benchmark == "perplexity":
        value = 3.2 * math.exp(method.decay * doublings) * jitter
    elif benchmark == "nll_by_position":
        bins = [
            {"position_bin": start, "nll": _nll(method, start) * jitter}
            for start in range(0, length, 64)
        ]
        value = sum(row["nll"] for row in bins) / len(bins)
    else:
        asked = [_answer(method, doublings, seed, index, length) for index in range(10)]
        value = sum(row["score"] for row in asked) / len(asked)
    pq.write_table(pa.Table.from_pylist(asked, schema=SAMPLES), attempt.out / SAMPLES_FILE)
    pq.write_table(pa.Table.from_pylist(bins, schema=TOKEN_NLL), attempt.out / TOKEN_NLL_FILE)
    count = max(len(asked), 8)
    extra = [_score("windows", float(count), count, True)] if benchmark == "perplexity" else []
    return {
        "scores": [_score(metric, value, count, higher), *extra],
        "unit": unit,
        "profile": "tiny",
        "default_metric": metric,
        "kernel": "sdpa",
        "measured": {"tokens": count * length, "flops": 6e5 * count * length},
        "predicted": {"tokens": 12 * length, "flops": 7.2e6 * length},
        "data": ["essays"] if benchmark == "needle" else [],
        "prompt_tokens": {"mean": length - 8.0, "min": length - 8, "max": length - 8},
    }


def _score(metric: str, value: float, count: int, higher: bool) -> dict[str, Any]:
    return {
        "metric": metric,
        "value": value,
        "ci_low": value * 0.95,
        "ci_high": value * 1.05,
        "num_samples": count,
        "higher_is_better": higher,
    }


def _nll(method: Method, position: int) -> float:
    return 1.2 + method.decay * max(0.0, math.log2((position + 64) / TRAINED))


def _answer(method: Method, doublings: float, seed: int, index: int, length: int) -> dict[str, Any]:
    right = (index * 7 + seed * 3) % 10 < 10 * method.recall**doublings
    return {
        "sample": index,
        "num_prompt_tokens": length - 8,
        "depth": index * 100 / 9,
        "prediction": "70213" if right else "70 ",
        "reference": "70213",
        "score": 1.0 if right else 0.0,
        "cluster": None,
    }


def _write_rows(attempt: Attempt) -> dict[str, Any]:
    (attempt.out / "manifest.json").write_text("{}", encoding="utf-8")
    return {"tokens": 4096}


def _write_training(attempt: Attempt) -> dict[str, Any]:
    spec = attempt.step.spec
    if spec["method"] == "ntk_32k" and spec["seed"] == 2:
        raise DataError("rows.bin", "token 9999", "the vocabulary", "pack")
    rows = [
        {
            "step": step,
            "tokens": step * 512,
            "loss": 5.0 / step + spec["seed"] / 10,
            "learning_rate": 1e-3,
            "tokens_per_second": 40000.0,
            "mfu": None,
            "grad_norm": 2.0 / step,
            "peak_memory_bytes": 1 << 30,
        }
        for step in range(1, 6)
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (attempt.out / "loss.jsonl").write_text(lines, encoding="utf-8")
    (attempt.out / "model").mkdir()
    (attempt.out / "model" / "config.json").write_text("{}", encoding="utf-8")
    return {"final_loss": rows[-1]["loss"], "steps": 5, "tokens": 2560, "kernel": "sdpa"}
