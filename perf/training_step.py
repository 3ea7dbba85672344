"""Measure the overhead of training steps, as ratios: of the loss, and of the training loop.

Loss: `linear_cross_entropy` against torch's cross-entropy of whole logits, forward and backward,
with the sizes of a Llama head and equal losses and gradients. Memory has gradients and logits.

Loop: steps of `lce_core.training.trainer` against a plain torch loop over the same rows, without
log, checks or resume points, with equal losses.
"""

import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from measuring import Row, at_most, compare, measure, random_rows
from torch.nn import functional

from lce_core.data.packing import PackedRows
from lce_core.devices import reproducible
from lce_core.evaluation.cross_entropy import Head, linear_cross_entropy
from lce_core.training.assembly import LossModel
from lce_core.training.job import TrainingJob
from lce_core.training.loss_log import LOG, read_entries
from lce_core.training.run import run
from lce_core.training.schedule import learning_rate, rows_of_step
from tests.support.torch_memory import peak_bytes
from tests.support.training_jobs import BASE, job_maker

ROW_TOKENS, ROWS_PER_STEP = 128, 16
"""Row length in tokens and rows per step, as in the training of the toy base model."""
WARM_UP = 5
Passes = Callable[[], tuple[torch.Tensor, ...]]


def rows(options: Namespace) -> Iterator[Row]:
    ours, theirs = losses(options)
    for mine, other in zip(ours(), theirs(), strict=True):
        error = float((mine - other).abs().max() / other.abs().max())
        assert error <= 1e-5, error

    def row(what: str, against: str, ratio: float, limit: float) -> Row:
        return {"what": what, "against": against, "ratio": ratio, "limit": at_most(ratio, limit)}

    blocks, whole = "the loss, in blocks of tokens", "whole logits"
    yield row(f"memory of {blocks}", whole, peak_bytes(ours) / peak_bytes(theirs), 0.2)
    yield row(f"CPU time of {blocks}", whole, compare(ours, theirs, options.repeats).cpu, 1.15)
    ratio = loop_ratio(options)
    yield row("a training step of the toy base model", "a bare loop", ratio, 1.05)


def losses(options: Namespace) -> tuple[Passes, Passes]:
    """Return the forward and backward pass of the loss in blocks, and of that from whole logits."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(options.tokens, options.hidden, generator=generator)
    weight = torch.randn(options.vocabulary, options.hidden, generator=generator) * 0.05
    targets = torch.randint(options.vocabulary, (options.tokens,), generator=generator)
    weights = torch.ones(options.tokens)

    def in_blocks(hidden: torch.Tensor, weight: torch.Tensor) -> Any:
        return linear_cross_entropy(hidden, Head(weight), targets, weights)

    def whole(hidden: torch.Tensor, weight: torch.Tensor) -> Any:
        return functional.cross_entropy(hidden @ weight.T, targets, reduction="sum")

    def both_passes(loss: Callable[..., Any]) -> Passes:
        def call() -> tuple[torch.Tensor, ...]:
            leaves = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
            value = loss(*leaves)
            return value.detach(), *torch.autograd.grad(value, leaves)

        return call

    return both_passes(in_blocks), both_passes(whole)


def loop_ratio(options: Namespace) -> float:
    """Return the step time of the trainer / of a plain torch loop, with equal losses."""
    random_rows(options.folder, 4 * options.steps, ROW_TOKENS, vocabulary=256)
    new_job = partial(
        job_maker(options.folder, options.folder),
        {"tokens_per_step": ROW_TOKENS * ROWS_PER_STEP},
        num_steps=options.steps,
        row_length=ROW_TOKENS,
        target_context=ROW_TOKENS,
        threads=options.threads,
    )
    runs = compare(lambda: trainer(new_job()), lambda: bare(new_job()), options.repeats)
    ratios = []
    for ours, theirs in zip(runs.first, runs.second, strict=True):
        (found, mine), (expected, bares) = ours.result, theirs.result
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        ratios.append(statistics.median(mine[WARM_UP:]) / statistics.median(bares[WARM_UP:]))
    return statistics.median(ratios)


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
    with reproducible(torch.device("cpu"), job.threads):
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


if __name__ == "__main__":
    sizes = {"tokens": 16384, "hidden": 512, "vocabulary": 32000}
    measure(__doc__, rows, **sizes, steps=60, repeats=5, threads=1)
