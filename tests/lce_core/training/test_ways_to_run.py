"""How a run is carried out changes nothing: passes, interruptions and processes, for each method
that trains parameters or rows of its own. The same job in one go and one process is the oracle."""

from typing import Any

import pytest
import torch
from safetensors import safe_open

from lce_core.errors import SpecError
from lce_core.methods import METHODS
from lce_core.training.job import TrainingJob
from lce_core.training.run import run
from tests.support.training_jobs import ROW_LENGTH, InterruptedRunError, checkpoint, losses, silent

METHOD_ENTRIES: dict[str, dict[str, Any]] = {
    "longlora": {},
    "landmark": {"block": 8, "top_k": 2, "train_length": 32},
    "clex": {"max_scale": 6},
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "sharding", "processes", "tolerance"),
    [
        (None, "replicate", 2, 1e-6),
        (None, "shard", 3, 1e-5),
        ("longlora", "shard", 2, 1e-5),
        ("clex", "replicate", 2, 1e-5),
        ("landmark", "shard", 2, 1e-5),
    ],
)
def test_processes_compute_what_one_computes_also_where_rows_do_not_divide(
    make_job, method, sharding, processes, tolerance
):
    training = {"tokens_per_step": 7 * ROW_LENGTH, "ema_decay": 0.75, "gradient_clip": 0.1}
    changes = {"num_steps": 4, **fields(method)}
    one = make_job(training, **changes)
    several = {"processes": processes, "sharding": sharding, "micro_batch_tokens": 128}
    some = make_job(training, **changes, **several, gradient_checkpointing=sharding == "shard")
    run(one, silent)
    seen: list[dict[str, Any]] = []
    assert run(some, seen.append)["processes"] == processes
    assert seen[-1]["step"] == 4
    assert_close(some, one, loss=tolerance, weight=1e-4 if method in ("clex", "landmark") else 1e-5)
    configs = [(job.out / "model" / "config.json").read_text() for job in (one, some)]
    assert configs[0] == configs[1]
    assert {path.name for path in some.resume.iterdir()} == {"loss.jsonl"}


COPIES = {"precision": "bf16", "param_dtype": "bf16"}


@pytest.mark.slow
def test_bf16_copies_of_fp32_weights_are_those_of_any_number_of_processes(make_job):
    one, two, mixed = (
        make_job({**training}, num_steps=4, processes=processes)
        for training, processes in ((COPIES, 1), (COPIES, 2), ({"precision": "bf16"}, 1))
    )
    facts = [run(job, silent) for job in (one, two, mixed)]
    assert [fact["state_precision"] for fact in facts] == ["fp32"] * 3
    assert {tensor.dtype for tensor in checkpoint(one).values()} == {torch.float32}
    assert losses(two) == pytest.approx(losses(one), abs=2e-3)
    assert losses(one) != losses(mixed)  # activations between layers are bf16
    assert losses(one) == pytest.approx(losses(mixed), abs=2e-2)


def test_bf16_copies_and_replicas_exclude_each_other(make_job):
    with pytest.raises(SpecError, match="replicate with param_dtype bf16"):
        run(make_job(COPIES, sharding="replicate", processes=2), silent)
