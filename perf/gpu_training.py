"""Training steps of a random model through the project's own trainer: speed, memory, kernel.

Each length is tried with all layers and fp32 states, then with states that take less, then with
fewer layers, until it fits; a row says what it is of. The first steps are not counted. Figures are
those that the trainer logs of each step, a row of the length each.

    python perf/gpu_training.py --lengths 32768 --rows FILE.jsonl
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_common import PLUGINS, add_row, attention_kernels, options, random_llama

from lce_core.data.manifest import write_manifest
from lce_core.devices import reproducible, resolve_device
from lce_core.methods import METHODS
from lce_core.models import LanguageModel
from lce_core.recipe import Training
from lce_core.training.job import TrainingJob
from lce_core.training.loss_log import LOG, read_entries
from lce_core.training.trainer import Trainer

WARM_UP = 2
STEPS = 8
"""Steps of a run, as far as there is time."""
_GIB = 2**30


class EnoughError(Exception):
    """Raised from a report, before the trainer saves a checkpoint, which is not needed here."""


def main() -> None:
    chosen = options(__doc__.split("\n")[0])
    for length in chosen.lengths:
        for method in chosen.methods:
            if time.monotonic() < chosen.deadline:
                add_row(chosen.rows, measured(chosen, length, method))


def measured(chosen: argparse.Namespace, length: int, method: str) -> dict[str, Any]:
    """Return the row of the first way that fits the device."""
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
        gc.collect()  # here, where no traceback holds the model any more
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return row


def figures(
    chosen: argparse.Namespace, base: LanguageModel, length: int, method: str, states: str
) -> dict[str, Any] | str:
    """Return the trainer's log of its steps, or the reason why there were none."""
    try:
        entries, kernel = steps(base, length, method, states, STEPS, chosen.deadline)
    except RuntimeError as error:  # out of memory, or a kernel that cannot: the table says which
        return str(error).splitlines()[0]
    counted = entries[WARM_UP:] or entries
    mfu = [entry["mfu"] for entry in counted if entry["mfu"] is not None]
    one_layer = random_llama(chosen.shape, layers=1)
    return {
        "layers": base.shape.num_layers,
        "states": states,
        "tokens_per_second": statistics.median(e["tokens_per_second"] for e in counted),
        "mfu": statistics.median(mfu) if mfu else None,
        "peak_memory_gib": round(max(e["peak_memory_bytes"] for e in entries) / _GIB, 2),
        "kernel": kernel,
        "kernels": attention_kernels(lambda: steps(one_layer, length, method, states, 1)),
        "steps": len(counted),
        "loss": [entry["loss"] for entry in entries],
    }


def ways(shape: str) -> Iterator[tuple[int | None, str]]:
    """Layers (None: all) and state precisions, the best first."""
    less = ["bf16"] if "state_precision" in Training.model_fields else []
    for states in ["fp32", *less]:
        yield None, states
    if shape == "Llama-2-7B":
        for layers in (24, 16, 8):
            yield layers, "fp32"


def cannot_fit(base: LanguageModel, states: str) -> str | None:
    """Why there is no point in trying: the states alone fill the device."""
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
    """Entries of the trainer's log, one a step, and the kernel that it names."""

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
    """Return a run of bf16 steps on one row of random tokens each, activations recomputed."""
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
    random_rows(made["rows"], number, length)
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


def random_rows(folder: Path, number: int, length: int) -> None:
    """Rows as `lce_core.data.packing` leaves them, of random tokens."""
    drawn = np.random.default_rng(0).integers(32000, size=(number, length), dtype=np.uint16)
    (folder / "rows.bin").write_bytes(drawn.tobytes())
    manifest = {"num_rows": number, "row_length": length, "dtype": "uint16", "weighted": False}
    write_manifest(folder, json.loads(json.dumps(manifest)))


if __name__ == "__main__":
    main()
