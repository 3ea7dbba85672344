"""Measure training steps of a random model with lce's trainer: speed, memory, kernel.

For each length the script tries all layers with fp32 states, then bf16 states, then fewer layers,
until the run fits into memory; the row states which. Each step trains on one row. Speed and memory
come from the trainer's log, without the first steps.

    python perf/gpu_training.py --lengths 32768 --rows FILE.jsonl
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from gpu_common import PLUGINS, add_row, attention_kernels, options, random_llama, speed_of
from measuring import random_rows

from lce_core.devices import reproducible, resolve_device
from lce_core.methods import METHODS
from lce_core.models import LanguageModel
from lce_core.recipe import Training
from lce_core.training.job import TrainingJob
from lce_core.training.loss_log import LOG, read_entries
from lce_core.training.trainer import Trainer

WARM_UP = 2
STEPS = 8
"""Maximum number of steps of a run."""
_GIB = 2**30


class EnoughError(Exception):
    """Ends a run after its last step, before the trainer saves a checkpoint."""


def main() -> None:
    chosen = options(__doc__.split("\n")[0])
    for length in chosen.lengths:
        for method in chosen.methods:
            if time.monotonic() < chosen.deadline:
                add_row(chosen.rows, measured(chosen, length, method))


def measured(chosen: argparse.Namespace, length: int, method: str) -> dict[str, Any]:
    """Return the row of the first setting that fits into the device's memory."""
    refused: list[str] = []
    row: dict[str, Any] = {
        "what": "training",
        "model": chosen.shape,
        "method": method,
        "length": length,
        "refused": refused,
    }
    for layers, states in ways(chosen.shape):
        sizes = {} if layers is None else {"layers": layers}
        base = random_llama(chosen.shape, **sizes)
        found = cannot_fit(base, states) or figures(chosen, base, length, method, states)
        if isinstance(found, dict):
            return {**row, **found}
        refused.append(f"{base.shape.num_layers} layers, {states} states: {found}")
        gc.collect()  # frees the model, which no traceback references any more
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return row


def figures(
    chosen: argparse.Namespace, base: LanguageModel, length: int, method: str, states: str
) -> dict[str, Any] | str:
    """Train and return figures from the trainer's log, or the first line of the error."""
    try:
        entries, kernel = steps(base, length, method, states, STEPS, chosen.deadline)
    except RuntimeError as error:  # out of memory, or an unsupported kernel
        return str(error).splitlines()[0]
    one_layer = random_llama(chosen.shape, layers=1)
    return {
        "layers": base.shape.num_layers,
        "states": states,
        **speed_of(entries, WARM_UP),
        "kernel": kernel,
        "kernels": attention_kernels(lambda: steps(one_layer, length, method, states, 1)),
        "steps": len(entries[WARM_UP:] or entries),
        "loss": [entry["loss"] for entry in entries],
    }


def ways(shape: str) -> Iterator[tuple[int | None, str]]:
    """Yield settings to try, the best first: number of layers (None: all), state precision."""
    less = ["bf16"] if "state_precision" in Training.model_fields else []
    for states in ["fp32", *less]:
        yield None, states
    if shape == "Llama-2-7B":
        for layers in (24, 16, 8):
            yield layers, "fp32"


def cannot_fit(base: LanguageModel, states: str) -> str | None:
    """Return the reason if the states alone exceed the device's memory, else None."""
    if not torch.cuda.is_available():
        return None
    needed = base.num_parameters() * (16 if states == "fp32" else 8)  # type: ignore[attr-defined]
    there = torch.cuda.get_device_properties(0).total_memory
    if needed < there:
        return None
    return f"{needed / _GIB:.0f} GiB of states, more than the device's {there / _GIB:.0f}"


def steps(
    base: LanguageModel,
    length: int,
    method: str,
    states: str,
    number: int,
    deadline: float = float("inf"),
) -> tuple[list[dict[str, Any]], str]:
    """Train `number` steps; return the entries of the trainer's log, and the attention kernel."""

    def report(entry: dict[str, Any]) -> None:
        if entry["step"] == number or time.monotonic() > deadline:
            raise EnoughError

    with tempfile.TemporaryDirectory(prefix="lce-gpu-") as name:
        job = training_job(base, Path(name), length, method, states, number)
        device = resolve_device("auto")
        with reproducible(device, torch.get_num_threads()):
            trainer = Trainer(job, device)
            with contextlib.suppress(EnoughError):
                trainer.train(report)
        return read_entries(job.resume / LOG), trainer.kernel


def training_job(
    base: LanguageModel, folder: Path, length: int, method: str, states: str, number: int
) -> TrainingJob:
    """Return a bf16 run on random tokens with one row per step and full recomputation."""
    settings: dict[str, Any] = {
        "learning_rate": 1e-5,
        "tokens_per_step": length,
        "warmup_steps": 1,
        "schedule": "constant",
        "precision": "bf16",
    }
    if states != "fp32":
        settings["state_precision"] = states
    target = max(length, 2 * base.geometry.trained_context)
    made = {name: folder / name for name in ("rows", "out", "resume")}
    for place in made.values():
        place.mkdir()
    random_rows(made["rows"], number, length, vocabulary=32000)
    return TrainingJob(
        base_model=base.identity(),
        method=METHODS.parse({"name": method}, "perf/gpu").identity(),
        training=Training(**settings),
        from_scratch=True,
        base_folder=None,
        seed=0,
        num_steps=number,
        row_length=length,
        target_context=target,
        micro_batch_tokens=length,
        checkpoint_seconds=1e9,
        gradient_checkpointing=True,
        plugin_folders=(PLUGINS,),
        **made,
    )


if __name__ == "__main__":
    main()
