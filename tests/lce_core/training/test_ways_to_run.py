"""How a run is carried out changes nothing: passes, interruptions and processes, for each method
that trains parameters or rows of its own. The same job in one go and one process is the oracle."""

import shutil
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from safetensors import safe_open

from lce_core.methods import METHODS
from lce_core.training.job import TrainingJob
from lce_core.training.run import run
from tests.support.launched_jobs import run_together
from tests.support.training_jobs import (
    BASE,
    ROW_LENGTH,
    InterruptedRunError,
    checkpoint,
    job_maker,
    losses,
    silent,
    weights,
)

METHOD_ENTRIES: dict[str, dict[str, Any]] = {
    "longlora": {},
    "landmark": {"block": 8, "top_k": 2, "train_length": 32},
    "clex": {"max_scale": 6},
    "learned_rope": {"sharing": "head", "learning_rate_factor": 10.0},
}
"""New factors, inserted tokens and a network with rows at drawn positions."""
HALF = {"precision": "bf16", "state_precision": "bf16"}


def fields(method: str | None) -> dict[str, Any]:
    if method is None:
        return {}
    entry = {"name": method, **METHOD_ENTRIES[method]}
    return {"method": METHODS.parse(entry, "method").identity(), "target_context": 512}


def assert_close(ours: TrainingJob, theirs: TrainingJob, loss: float, weight: float) -> None:
    assert losses(ours) == pytest.approx(losses(theirs), abs=loss)
    expected = checkpoint(theirs)
    assert checkpoint(ours).keys() == expected.keys()
    for name, tensor in checkpoint(ours).items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=weight)


@pytest.mark.parametrize("method", ["landmark", pytest.param("clex", marks=pytest.mark.slow)])
def test_rows_that_pass_one_by_one_give_the_run_of_whole_batches(make_job, method):
    # Few steps: phases of CLEX's far positions carry a rounded weight on a hundredfold.
    whole, parts = (
        make_job(num_steps=4, micro_batch_tokens=rows * ROW_LENGTH, **fields(method))
        for rows in (8, 1)
    )
    run(whole, silent)
    run(parts, silent)
    assert_close(parts, whole, loss=1e-5, weight=1e-4)


@pytest.mark.usefixtures("every_second")
@pytest.mark.parametrize(
    ("method", "training", "seconds"),
    [
        pytest.param(None, {**HALF, "ema_decay": 0.9}, 0.0, marks=pytest.mark.slow),
        ("longlora", {"ema_decay": 0.9}, 6.0),
        ("landmark", {}, 0.0),
        pytest.param("clex", {"ema_decay": 0.9}, 0.0, marks=pytest.mark.slow),
    ],
)
def test_a_resumed_run_equals_an_undisturbed_one_bit_for_bit(make_job, method, training, seconds):
    changes = {"num_steps": 9, **fields(method)}
    undisturbed = make_job(training, **changes)
    run(undisturbed, silent)

    def interrupt(row: dict[str, Any]) -> None:
        if row["step"] == 7:
            raise InterruptedRunError

    first = make_job(training, **changes, checkpoint_seconds=seconds)
    with pytest.raises(InterruptedRunError):
        run(first, interrupt)
    assert not (first.out / "model").exists()
    if method == "longlora":
        (shard,) = first.resume.glob("point-*/shard-*")
        with safe_open(shard, framework="pt") as point:
            held = set(point.keys())
        assert "weights/model.layers.0.self_attn.q_proj.lora_B" in held
        assert "average/model.embed_tokens.weight" in held
        assert not any("mlp" in name or "_proj.weight" in name for name in held)
    second = make_job(training, **changes, resume=first.resume)
    assert 0 < run(second, silent)["resumed_from"] < 7
    assert losses(second) == losses(undisturbed)
    expected = checkpoint(undisturbed)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in checkpoint(second).items())


COPIES = {"precision": "bf16", "param_dtype": "bf16"}
ROUNDED = {**HALF, "tokens_per_step": 2 * ROW_LENGTH, "warmup_steps": 0, "ema_decay": 0.5}
UNEVEN = {"tokens_per_step": 7 * ROW_LENGTH, "ema_decay": 0.75, "gradient_clip": 0.1}
"""Rows that do not divide by two processes."""
SHARINGS = {
    "replicated": (None, "auto", 1e-6, 1e-5),
    "sharded": (None, "shard", 1e-5, 1e-5),
    "longlora": ("longlora", "shard", 1e-5, 1e-5),
    "clex": ("clex", "auto", 1e-5, 1e-4),
    "landmark": ("landmark", "shard", 1e-5, 1e-4),
    "learned_rope": ("learned_rope", "shard", 1e-5, 1e-4),
}
"""Method, sharding, and tolerances of losses and weights."""


@dataclass(frozen=True)
class Launched:
    job: TrainingJob
    facts: dict[str, Any]


@pytest.fixture(scope="module")
def halves(saved_base) -> dict[str, Any]:
    """Fields of a job in which some weights stay fp32 beside bf16 ones."""
    changes = {"from_scratch": False, "base_folder": saved_base, "num_steps": 2}
    return {**fields("clex"), **changes}


@pytest.fixture(scope="module")
def by_two(rows, halves, tmp_path_factory) -> dict[str, Launched]:
    """Jobs that two processes have run."""
    folder = tmp_path_factory.mktemp("by-two")
    make = partial(job_maker(rows, folder), processes=2)
    jobs = {
        name: make(
            UNEVEN,
            **{"num_steps": 4, **fields(method)},
            sharding=sharding,
            micro_batch_tokens=128,
            gradient_checkpointing="full" if sharding == "shard" else "none",
        )
        for name, (method, sharding, _, _) in SHARINGS.items()
    }
    jobs |= {
        "copies": make(COPIES, num_steps=4),
        "one step": make(ROUNDED, num_steps=1),
        "with points": make(ROUNDED, num_steps=6, checkpoint_seconds=0.0),
        "clex in bf16": make(HALF, **halves),
    }
    facts = run_together([*jobs.values()], folder)
    return {name: Launched(job, of) for (name, job), of in zip(jobs.items(), facts, strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARINGS)
def test_processes_compute_what_one_computes_also_where_rows_do_not_divide(make_job, by_two, name):
    method, _, loss, weight = SHARINGS[name]
    one, two = make_job(UNEVEN, **{"num_steps": 4, **fields(method)}), by_two[name].job
    run(one, silent)
    assert by_two[name].facts["processes"] == 2
    assert by_two[name].facts["step"] == 4
    assert_close(two, one, loss=loss, weight=weight)
    configs = [(job.out / "model" / "config.json").read_text() for job in (one, two)]
    assert configs[0] == configs[1]
    assert {path.name for path in two.resume.iterdir()} == {"loss.jsonl"}


@pytest.mark.slow
def test_bf16_copies_of_fp32_weights_are_those_of_any_number_of_processes(make_job, by_two):
    one, mixed = make_job(COPIES, num_steps=4), make_job({"precision": "bf16"}, num_steps=4)
    two = by_two["copies"].job
    facts = [run(one, silent), by_two["copies"].facts, run(mixed, silent)]
    assert [fact["state_precision"] for fact in facts] == ["fp32"] * 3
    assert {tensor.dtype for tensor in checkpoint(one).values()} == {torch.float32}
    assert losses(two) == pytest.approx(losses(one), abs=2e-3)
    assert losses(one) != losses(mixed)  # activations between layers are bf16
    assert losses(one) == pytest.approx(losses(mixed), abs=2e-2)


@pytest.mark.slow
def test_two_processes_round_like_one_and_share_their_points(make_job, by_two):
    starts = dict(BASE.initialise(0).named_parameters())

    def require_alike(ours: TrainingJob, theirs: TrainingJob) -> None:
        mine, other = weights(ours), weights(theirs)
        moved = sum(int((mine[name] != starts[name].bfloat16()).sum()) for name in mine)
        apart = sum(int((mine[name] != other[name]).sum()) for name in mine)
        # Gradients differ in the order of sums; noise of its own would part a third of what moved.
        assert moved > 100_000
        assert apart < 0.05 * moved

    one, two = make_job(ROUNDED, num_steps=1), by_two["one step"].job
    run(one, silent)
    require_alike(one, two)

    shared = by_two["with points"].job
    alone = make_job(ROUNDED, num_steps=6)
    shutil.copytree(shared.resume, alone.resume)
    assert 0 < run(alone, silent)["resumed_from"] < 6
    assert losses(alone) == pytest.approx(losses(shared), rel=0.03)


@pytest.mark.slow
def test_weights_that_stay_fp32_are_shared_beside_bf16_ones(make_job, by_two, halves):
    one = make_job(HALF, **halves)
    run(one, silent)
    assert losses(by_two["clex in bf16"].job) == pytest.approx(losses(one), rel=1e-3)


def test_bf16_states_follow_fp32_states_and_write_bf16_weights(make_job):
    full = make_job({"precision": "bf16"})
    half = make_job(HALF, micro_batch_tokens=3 * ROW_LENGTH)
    run(full, silent)
    run(half, silent)
    assert losses(half) != losses(full)
    assert losses(half) == pytest.approx(losses(full), rel=0.02)
    assert {tensor.dtype for tensor in weights(half).values()} == {torch.bfloat16}
    BASE.load(half.out / "model", torch.float32)
