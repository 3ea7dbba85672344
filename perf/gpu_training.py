"""Measure training steps of a random model with bf16 states: speed, memory, kernel.

It runs lce's trainer with the first of its out-of-memory fallbacks whose estimated memory fits
this device, and after an out-of-memory error with the next one; the row states which one ran.
With --compiling it trains a model of few layers without and with compiled layers. Steps with one of
the first two passes are not counted: the first selects kernels, the second compiles the layers.

    python perf/gpu_training.py --lengths 32768 --rows-per-step 4 --rows FILE.jsonl
"""

import contextlib
import gc
import math
import statistics
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gpu_common import PLUGINS, Measurement, SkippedError, first_line, gib, random_llama, section
from measuring import random_rows

from lce_core.devices import memory_bytes, reproducible, resolve_device
from lce_core.methods import METHODS
from lce_core.models import LanguageModel
from lce_core.recipe import Training
from lce_core.training.job import TrainingJob
from lce_core.training.loss_log import LOG, read_entries
from lce_core.training.memory import described, worth_trying
from lce_core.training.trainer import Trainer
from tests.support.training_jobs import training_job

COUNTED_STEPS = 2
"""Maximum number of steps of a run that are counted."""
COMPILED_LAYERS = 4
"""Layers of the model for --compiling: enough, because all layers run the same graph."""


class EnoughError(Exception):
    """Ends a run after its last step, before the trainer saves a checkpoint."""


def measurements(options: Namespace) -> Iterator[Measurement]:
    for length in options.lengths:
        row = {"what": "training", "method": options.method}
        row |= {"length": length, "rows": options.rows_per_step}
        if options.compiling:
            for compiled in (False, True):
                yield row, partial(compiling, options, length, compiled)
        else:
            yield row, partial(steps, options, length)


def steps(options: Namespace, length: int) -> dict[str, Any]:
    """Return the figures of the first fallback that fits into this device's memory."""
    base, device = random_llama(options.shape), resolve_device("auto")
    failed: list[str] = []
    with random_job(base, options, length) as job:
        for fallback in worth_trying(job, base, device, memory_bytes(device)):
            if time.monotonic() > options.deadline:
                failed.append("no time left")
                break
            try:
                figures = trained(fallback, base, device, options.deadline)
                return {**figures, "out_of_memory": failed}
            except torch.OutOfMemoryError as error:
                failed.append(f"{described(fallback)}: {first_line(error)}")
            # Collect outside the except clause, which keeps the trainer alive by its traceback.
            gc.collect()
            torch.cuda.empty_cache()
    raise SkippedError("; ".join(failed))


def compiling(options: Namespace, length: int, compiled: bool) -> dict[str, Any]:
    """Return the figures of a model of few layers, compiled or not."""
    base = random_llama(options.shape, layers=COMPILED_LAYERS)
    device = resolve_device("auto")
    settings = {"compile_layers": compiled, "gradient_checkpointing": "attention"}
    with random_job(base, options, length) as job:
        return trained(job.model_copy(update=settings), base, device, options.deadline)


def trained(
    job: TrainingJob, base: LanguageModel, device: torch.device, deadline: float
) -> dict[str, Any]:
    """Train and return figures from the trainer's log."""

    def report(entry: dict[str, Any]) -> None:
        if entry["step"] == job.num_steps or time.monotonic() > deadline:
            raise EnoughError

    with reproducible(device, torch.get_num_threads()):
        trainer = Trainer(job, device)
        if job.compile_layers and device.type == "cpu":
            # The trainer compiles on CUDA only. This compiler needs no C compiler.
            for layer in trainer.model.base_model.layers:
                layer.compile(backend="aot_eager", dynamic=False)
        with contextlib.suppress(EnoughError):
            trainer.train(report)
    entries = read_entries(job.resume / LOG)
    counted = entries[uncounted(job.rows_per_step) :]
    if not counted:
        raise SkippedError(f"no time left after the first steps ({described(job)})")
    mfu = [entry["mfu"] for entry in counted if entry["mfu"] is not None]
    return {
        "layers": base.shape.num_layers,
        "states": job.state_precision,
        "kept": job.kept,
        "compiled": job.compile_layers and job.kept != "offload",
        "steps": len(counted),
        "tokens_per_second": statistics.median(entry["tokens_per_second"] for entry in counted),
        "mfu": statistics.median(mfu) if mfu else None,
        "peak_memory_gib": gib(max(entry["peak_memory_bytes"] for entry in entries)),
        "kernel": trainer.kernels_run,
        "loss": [entry["loss"] for entry in entries],
    }


def uncounted(rows_per_step: int) -> int:
    """Return the number of steps that contain one of the first two passes, each of one row."""
    return math.ceil(2 / rows_per_step)


@contextlib.contextmanager
def random_job(base: LanguageModel, options: Namespace, length: int) -> Iterator[TrainingJob]:
    """Yield a bf16 run on random tokens with one row per forward pass, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="lce-gpu-") as name:
        folder = Path(name)
        for part in ("rows", "out", "resume"):
            (folder / part).mkdir()
        num_steps = uncounted(options.rows_per_step) + COUNTED_STEPS
        random_rows(folder / "rows", num_steps * options.rows_per_step, length, vocabulary=32000)
        yield training_job(
            base,
            folder,
            length,
            method=METHODS.parse({"name": options.method}, "perf/gpu").identity(),
            training=Training(
                learning_rate=1e-5,
                tokens_per_step=options.rows_per_step * length,
                warmup_steps=1,
                schedule="constant",
                precision="bf16",
                state_precision="bf16",
            ),
            num_steps=num_steps,
            target_context=max(length, 2 * base.geometry.trained_context),
            micro_batch_tokens=length,
            checkpoint_seconds=1e9,
            plugin_folders=(PLUGINS,),
        )


if __name__ == "__main__":
    sys.exit(section(__doc__, measurements, compiling=False, rows_per_step=1, method="none"))
