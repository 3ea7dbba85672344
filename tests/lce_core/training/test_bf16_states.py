"""Strategy: runs with bf16 states against runs with fp32 states of the same job: as good within the
noise of seeds, resumed bit for bit, and the same noise whatever the number of processes."""

import shutil
from statistics import mean, stdev
from typing import Any

import pytest
import torch

from lce_core.errors import SpecError
from lce_core.methods import METHODS
from lce_core.training.run import run
from tests.support.training_jobs import (
    BASE,
    ROW_LENGTH,
    InterruptedRunError,
    losses,
    save_base,
    silent,
    weights,
)

HALF: dict[str, Any] = {"precision": "bf16", "state_precision": "bf16"}


def test_bf16_states_follow_fp32_states_and_write_bf16_weights(make_job):
    full = make_job({"precision": "bf16"})
    half = make_job(HALF, micro_batch_tokens=3 * ROW_LENGTH)
    run(full, silent)
    run(half, silent)
    assert losses(half) != losses(full)
    assert losses(half) == pytest.approx(losses(full), rel=0.02)
    assert {tensor.dtype for tensor in weights(half).values()} == {torch.bfloat16}
    BASE.load(half.out / "model", torch.float32)


@pytest.mark.slow
def test_two_processes_round_like_one_and_share_their_points(make_job):
    training = {**HALF, "tokens_per_step": 2 * ROW_LENGTH, "warmup_steps": 0, "ema_decay": 0.5}
    base = BASE.initialise(0)
    starts = {name: tensor.detach() for name, tensor in base.named_parameters()}
    one, two = make_job(training, num_steps=1), make_job(training, num_steps=1, processes=2)
    run(one, silent)
    run(two, silent)
    ours, theirs = weights(one), weights(two)
    moved = sum(int((ours[name] != starts[name].bfloat16()).sum()) for name in ours)
    apart = sum(int((ours[name] != theirs[name]).sum()) for name in ours)
    # Gradients differ in the order of sums; noise of its own would part a third of what moved.
    assert moved > 100_000
    assert apart < 0.05 * moved

    longer = {"num_steps": 20, "checkpoint_seconds": 0.0}
    first = make_job(training, **longer, processes=2)

    def interrupt(row: dict[str, Any]) -> None:
        if any(first.resume.glob("point-*")):
            raise InterruptedRunError

    with pytest.raises(InterruptedRunError):
        run(first, interrupt)
    alone, undisturbed = (make_job(training, **longer) for _ in range(2))
    shutil.copytree(first.resume, alone.resume)
    assert 0 < run(alone, silent)["resumed_from"] < 20
    run(undisturbed, silent)
    assert losses(alone) == pytest.approx(losses(undisturbed), rel=0.03)


@pytest.mark.slow
def test_weights_that_stay_fp32_are_shared_beside_bf16_ones(make_job, tmp_path):
    changes: dict[str, Any] = {
        "method": METHODS.parse({"name": "clex"}, "method").identity(),
        "from_scratch": False,
        "base_folder": save_base(tmp_path / "base"),
        "target_context": 512,
        "num_steps": 2,
    }
    one, two = make_job(HALF, **changes), make_job(HALF, **changes, processes=2)
    run(one, silent)
    run(two, silent)
    assert losses(two) == pytest.approx(losses(one), rel=1e-3)


def test_copies_with_bf16_states_are_refused(make_job):
    with pytest.raises(SpecError, match=r"sharding: got replicate with state_precision bf16"):
        run(make_job(HALF, processes=2, sharding="replicate"), silent)


@pytest.mark.slow
def test_bf16_states_reach_the_loss_of_fp32_states_within_the_noise_of_seeds(make_job):
    def reached(training: dict[str, Any], seed: int) -> float:
        job = make_job(training, num_steps=25, seed=seed)
        run(job, silent)
        return mean(losses(job)[-5:])

    full = [reached({}, seed) for seed in range(3)]
    half = [reached(HALF, seed) for seed in range(3)]
    assert abs(mean(half) - mean(full)) < 2 * stdev(full) / 3**0.5, (full, half)
