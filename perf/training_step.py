"""Measure the overhead of training steps, as ratios: of the loss, and of the training loop.

Loss: `linear_cross_entropy` against torch's cross-entropy of whole logits, forward and backward,
with the sizes of a Llama head. The script checks that loss and gradients are equal, then times both
one right after the other in alternating order, and prints the median ratio. Memory is the peak of
torch's allocator during one call, with gradients and logits.

Loop: steps of `lce_core.training.trainer` against a plain torch loop over the same rows, without
log, checks or resume points. The script checks that both have the same losses. Runs alternate; a
ratio compares the medians of their steps.

    python perf/training_step.py [--out FILE.json]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from figures import command_line, publish, without_out
from measuring import alternate, peak_memory, random_rows, ratio
from torch.nn import functional

from lce_core.data.packing import PackedRows
from lce_core.devices import reproducible
from lce_core.evaluation.cross_entropy import linear_cross_entropy
from lce_core.models import MODELS
from lce_core.recipe import Training
from lce_core.store.records import environment
from lce_core.training.assembly import LossModel
from lce_core.training.job import TrainingJob
from lce_core.training.loss_log import LOG, read_entries
from lce_core.training.run import run
from lce_core.training.schedule import learning_rate, rows_of_step

BASE = MODELS.parse({"name": "toy_llama"}, "perf")
CPU = torch.device("cpu")
ROW_TOKENS, ROWS_PER_STEP = 128, 16
"""Row length in tokens and rows per step, as in the training of the toy base model."""
WARM_UP = 5
LIMITS = {"memory of the loss": 0.2, "time of the loss": 1.15, "time of a step": 1.05}

Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--tokens", type=int, default=16384, help="tokens of one call of the loss")
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--steps", type=int, default=60, help="steps of one training run")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [*losses(options), *loops(options)]
    print("| what | against | ratio | limit |\n|---|---|--:|--:|")
    for row in rows:
        print(f"| {row['name']} | {row['reference']} | {row['ratio']:.3f} | {row['limit']:g} |")
    found = {"options": without_out(options), "rows": rows, "environment": environment()}
    print(f"\n{found['options']}")
    publish(found, options.out)


def losses(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the rows about the loss: memory and CPU time in blocks / with whole logits."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(options.tokens, options.hidden, generator=generator)
    weight = torch.randn(options.vocabulary, options.hidden, generator=generator) * 0.05
    targets = torch.randint(options.vocabulary, (options.tokens,), generator=generator)
    weights = torch.ones(options.tokens)

    def in_blocks(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> Any:
        return linear_cross_entropy(hidden, weight, None, targets, weights)

    def whole(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> Any:
        return functional.cross_entropy(hidden @ weight.T, targets, reduction="sum")

    def both_ways(loss: Loss) -> Callable[[], tuple[torch.Tensor, ...]]:
        def call() -> tuple[torch.Tensor, ...]:
            leaves = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
            value = loss(*leaves, targets)
            return value.detach(), *torch.autograd.grad(value, leaves)

        return call

    ours, theirs = both_ways(in_blocks), both_ways(whole)
    for mine, other in zip(ours(), theirs(), strict=True):
        error = float((mine - other).abs().max() / other.abs().max())
        assert error <= 1e-5, error
    memory = peak_memory(ours) / peak_memory(theirs)
    _, cpu = ratio(alternate(ours, theirs, options.repeats))
    name, reference = "the loss, in blocks of tokens", "whole logits"
    return [
        _row(f"memory of {name}", reference, memory, "memory of the loss"),
        _row(f"CPU time of {name}", reference, cpu, "time of the loss"),
    ]


def loops(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the row about the loop: step time of the trainer / of a plain torch loop."""
    ratios = []
    with tempfile.TemporaryDirectory(prefix="lce-perf-") as name:
        folder = Path(name)
        (folder / "rows").mkdir()
        random_rows(folder / "rows", 4 * options.steps, ROW_TOKENS, vocabulary=256)
        for repeat in range(options.repeats):
            taken: dict[str, list[float]] = {}
            found: dict[str, list[float]] = {}
            ways = [("trainer", trainer), ("bare", bare)]
            for way, train in ways[:: -1 if repeat % 2 else 1]:
                found[way], taken[way] = train(training_job(folder, repeat, way, options))
            np.testing.assert_allclose(found["trainer"], found["bare"], rtol=1e-5)
            medians = {way: statistics.median(steps[WARM_UP:]) for way, steps in taken.items()}
            ratios.append(medians["trainer"] / medians["bare"])
            print(medians, file=sys.stderr, flush=True)
    name = "a training step of the toy base model"
    return [_row(name, "a bare loop", statistics.median(ratios), "time of a step")]


def trainer(job: TrainingJob) -> tuple[list[float], list[float]]:
    """Run the trainer; return loss and seconds of each step."""
    run(job, lambda entry: None)
    entries, tokens = read_entries(job.out / LOG), job.training.tokens_per_step
    seconds = [tokens / entry["tokens_per_second"] for entry in entries]
    return [entry["loss"] for entry in entries], seconds


def bare(job: TrainingJob) -> tuple[list[float], list[float]]:
    """Run a plain torch loop; return loss and seconds of each step."""
    rows, training = PackedRows.open(job.rows), job.training
    module = LossModel(BASE.initialise(job.seed), training.precision).train()
    parameters = list(module.parameters())
    betas = training.adam_beta1, training.adam_beta2
    optimizer = torch.optim.AdamW(
        parameters, lr=1.0, betas=betas, weight_decay=training.weight_decay, fused=True
    )
    found, seconds = [], []
    with reproducible(CPU, job.threads):
        for step in range(job.num_steps):
            begun = time.monotonic()
            chosen = rows_of_step(job.seed, step, job.rows_per_step, len(rows))
            tokens, weights = map(torch.from_numpy, rows.read(chosen))
            loss = module(tokens, weights) / weights[:, 1:].sum()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, training.gradient_clip)
            optimizer.param_groups[0]["lr"] = learning_rate(training, step, job.num_steps)
            optimizer.step()
            optimizer.zero_grad()
            seconds.append(time.monotonic() - begun)
            found.append(float(loss.detach()))
    return found, seconds


def training_job(folder: Path, repeat: int, way: str, options: argparse.Namespace) -> TrainingJob:
    """Return a run with the toy base model's own training settings, for `--steps` steps."""
    out = folder / f"{way}-{repeat}"
    out.mkdir()
    training = Training(
        learning_rate=1e-3, tokens_per_step=ROW_TOKENS * ROWS_PER_STEP, warmup_steps=5
    )
    return TrainingJob(
        base_model=BASE.identity(),
        method=None,
        training=training,
        from_scratch=True,
        base_folder=None,
        rows=folder / "rows",
        seed=repeat,
        num_steps=options.steps,
        row_length=ROW_TOKENS,
        target_context=ROW_TOKENS,
        out=out,
        resume=folder / f"resume-{way}-{repeat}",
        device="cpu",
        threads=options.threads,
    )


def _row(name: str, reference: str, ratio: float, limit: str) -> dict[str, Any]:
    return {"name": name, "reference": reference, "ratio": ratio, "limit": LIMITS[limit]}


if __name__ == "__main__":
    main()
