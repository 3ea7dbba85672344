"""Small studies for the MLflow projection: real artifacts of a store, with scores made up."""

import json
from typing import Any

from lce_core.benchmarks import BENCHMARKS
from lce_core.store.artifacts import Attempt, Store
from lce_core.store.steps import Step
from tests.support.free_steps import free_step, planned_cell, planned_training

LENGTHS = (128, 512)
TARGET = 512
HELD_OUT = free_step(
    "held_out",
    "text",
    {"corpus": {"name": "local_text", "version": 1}, "digest": "0123456789abcdef" * 4},
    {},
)


def finetune(method: str, seed: int, rows: int = 5) -> Step:
    spec = {"method": method, "seed": seed, "num_steps": rows}
    return free_step("finetune", f"{method}-s{seed}", spec, {})


def cell(method: str, seed: int, benchmark: str, length: int, parent: Step | None) -> Step:
    spec = {"method": {"name": method, "version": 1, "scale": 4.0}, "seed": seed}
    spec |= {"benchmark": benchmark, "eval_length": length}
    name = f"{method}-s{seed}-{benchmark}-{length}"
    parents = {"held_out": HELD_OUT} | ({"checkpoint": parent} if parent else {})
    return free_step("cell", name, spec, parents)


def compute(attempt: Attempt) -> dict[str, Any]:
    spec = attempt.step.spec
    if attempt.step.kind == "finetune":
        losses = [
            {"step": n + 1, "loss": 5.0 / (n + 1), "grad_norm": 2.0, "mfu": None}
            for n in range(spec["num_steps"])
        ]
        lines = [json.dumps(row) + "\n" for row in losses]
        (attempt.out / "loss.jsonl").write_text("".join(lines), encoding="utf-8")
        return {"final_loss": losses[-1]["loss"], "steps": len(losses)}
    (attempt.out / "samples.txt").write_text("x", encoding="utf-8")
    value = 1000.0 * spec["seed"] + spec["eval_length"]
    scores = [{"metric": "accuracy", "value": value}, {"metric": "overlap", "value": value / 2}]
    return {"scores": scores, "default_metric": "accuracy", "kernel": "sdpa"}


def plan_study(
    store: Store,
    benchmarks: tuple[str, ...] = ("passkey",),
    seeds: tuple[int, ...] = (0, 1),
    study: str = "small",
    run: bool = True,
    curve_rows: int = 5,
    rows: tuple[tuple[str, bool], ...] = (("none", False), ("yarn", True)),
) -> list[Step]:
    """Plans a study and commits every step of it; returns the cells.

    Args:
      rows: each a method and whether it is tuned.
    """
    cells, plan_cells, trainings = [], [], []
    for method, tuned in rows:
        for seed in seeds:
            parent = finetune(method, seed, curve_rows) if tuned else None
            if parent is not None:
                trainings.append(planned_training(parent, method, seed, "toy_llama"))
                if run:
                    store.ensure(parent, compute, {})
            for benchmark in benchmarks:
                # Seeds share the cells of a frozen method if the benchmark draws no prompts.
                drawn = seed if tuned or BENCHMARKS.load(benchmark).seeded else seeds[0]
                for length in LENGTHS:
                    step = cell(method, drawn, benchmark, length, parent)
                    cells.append(step)
                    axes = {"method": method, "frozen": not tuned, "seed": seed}
                    plan_cells.append(planned(step, benchmark, length, axes, parent))
                    if run:
                        store.ensure(step, compute, {})
    store.studies.save_plan(
        study,
        {
            "study": study,
            "hypothesis": "YaRN extends, none does not.",
            "expects": [],
            "target_context": TARGET,
            "base_contexts": {"toy_llama": 128},
            "cells": plan_cells,
            "steps": [*(run["checkpoint"] for run in trainings), *(step.id for step in cells)],
            "kinds": {run["checkpoint"]: "finetune" for run in trainings},
            "trainings": trainings,
            "choices": [],
            "plugins": [],
        },
        "study.yaml",
    )
    return cells


def planned(
    step: Step, benchmark: str, length: int, axes: dict[str, Any], parent: Step | None
) -> dict[str, Any]:
    return planned_cell(
        step,
        parent,
        base_model="toy_llama",
        exact_attention=True,
        benchmark=benchmark,
        task="single",
        eval_length=length,
        **axes,
    )
