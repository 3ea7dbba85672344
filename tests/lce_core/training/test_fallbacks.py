"""Strategy: memory that runs out is provoked where autograd saves tensors, and by name where only a
GPU could tell; an undisturbed run of the same job is the oracle of what the fallbacks arrive at."""

from typing import Any

import pytest
import torch

from lce_core.errors import SpecError
from lce_core.models import MODELS
from lce_core.training import memory
from lce_core.training.assembly import LossModel
from lce_core.training.run import run
from tests.support.training_jobs import (
    BASE,
    ROW_LENGTH,
    InterruptedRunError,
    losses,
    silent,
    weights,
)

GPU = torch.device("cuda", 0)
ROWS_PER_STEP = 2
H100, H200 = 85_000_000_000, 150_000_000_000
"""Bytes of memory that drivers report."""


def _works_with(monkeypatch: pytest.MonkeyPatch, kept: str, dtype: torch.dtype) -> None:
    """Lets every forward pass be out of memory but with these."""
    stock = LossModel.forward

    def forward(self: LossModel, tokens: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        if (self.kept, self.model.dtype, len(tokens)) != (kept, dtype, 1):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.\nmore")
        return stock(self, tokens, weights)

    monkeypatch.setattr(LossModel, "forward", forward)


def test_a_run_out_of_memory_tries_its_fallbacks_and_ends_the_same(make_job, monkeypatch):
    undisturbed = make_job(num_steps=2)
    run(undisturbed, silent)
    _works_with(monkeypatch, "offload", torch.float32)
    job = make_job(num_steps=2, micro_batch_tokens=3 * ROW_LENGTH)
    facts = run(job, silent)
    assert facts["micro_rows"] == 1
    assert [text.split(",")[:2] for text in facts["out_of_memory"]] == [
        ["3 rows a pass", " gradient_checkpointing none"],
        ["1 row a pass", " gradient_checkpointing none"],
        ["1 row a pass", " gradient_checkpointing attention"],
        ["1 row a pass", " gradient_checkpointing attention:1"],
        ["1 row a pass", " gradient_checkpointing full"],
    ]
    assert losses(job) == pytest.approx(losses(undisturbed), abs=1e-5)


@pytest.mark.parametrize("allowed", ["fp32", "fp32_or_bf16"])
def test_states_become_bf16_only_where_the_study_allows_it(make_job, monkeypatch, allowed):
    _works_with(monkeypatch, "attention", torch.bfloat16)
    training = {"precision": "bf16", "state_precision": allowed}
    job = make_job(training, num_steps=2, micro_batch_tokens=ROW_LENGTH)
    if allowed == "fp32":
        numbers = r"an unknown amount on each of 1 cpu .* none, fp32 .* offload, fp32 states: CUDA"
        with pytest.raises(SpecError, match=numbers) as caught:
            run(job, silent)
        assert "weights, gradients and moments 0.0" in str(caught.value)
        assert "set state_precision: bf16" in str(caught.value)
        return
    facts = run(job, silent)
    assert (facts["state_precision"], facts["gradient_checkpointing"]) == ("bf16", "attention")
    assert len(facts["out_of_memory"]) == 6


@pytest.mark.usefixtures("every_second")
@pytest.mark.slow
def test_every_step_has_the_precision_that_the_record_names(make_job, monkeypatch):
    either = {
        "precision": "bf16",
        "state_precision": "fp32_or_bf16",
        "tokens_per_step": ROWS_PER_STEP * ROW_LENGTH,
    }
    shared = {"num_steps": 4, "micro_batch_tokens": ROW_LENGTH, "checkpoint_seconds": 0.0}
    alone = {}
    for name in ("fp32", "bf16"):
        alone[name] = make_job({**either, "state_precision": name}, **shared)
        run(alone[name], silent)
    assert losses(alone["fp32"]) != losses(alone["bf16"])

    stock, passes = LossModel.forward, 0

    def forward(self: LossModel, tokens: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        nonlocal passes
        passes += self.model.dtype == torch.float32
        if self.model.dtype == torch.float32 and passes > 2 * ROWS_PER_STEP:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return stock(self, tokens, weights)

    def interrupt(row: dict[str, Any]) -> None:
        if passes > 2 * ROWS_PER_STEP and row["step"] == 3:
            raise InterruptedRunError

    job = make_job(either, **shared)
    with monkeypatch.context() as patched:
        patched.setattr(LossModel, "forward", forward)
        with pytest.raises(InterruptedRunError):
            run(job, interrupt)
        # fp32 goes on from its own point, has no room for step 3, and bf16 goes on from its own.
        again = run(job, silent)
    assert again["state_precision"] == "bf16"
    assert 0 < again["resumed_from"] < 3
    assert losses(job) == losses(alone["bf16"])
    assert all(
        torch.equal(ours, weights(alone["bf16"])[name]) for name, ours in weights(job).items()
    )

    roomier = make_job(either, **shared, resume=job.resume)
    facts = run(roomier, silent)
    assert facts["state_precision"] == "fp32"
    assert 0 < facts["resumed_from"] < 3
    assert losses(roomier) == losses(alone["fp32"])


def _first(make_job: Any, capacity: int, training: dict[str, Any], **changes: Any) -> str:
    """What a run of Llama-2-7B begins with on GPUs of this memory."""
    tokens = changes.pop("tokens", 32768)
    lengths = {"row_length": tokens, "target_context": tokens, "micro_batch_tokens": tokens}
    given = {"precision": "bf16", "tokens_per_step": 256 * tokens, **training}
    job = make_job(given, **{**lengths, **changes})
    found = memory.worth_trying(job, MODELS.load("llama2_7b")(), GPU, capacity)
    return memory.described(found[0])


BF16 = {"state_precision": "bf16"}


@pytest.mark.parametrize(
    ("capacity", "training", "changes", "expected"),
    [
        (H100, BF16, {"tokens": 65536}, "offload, bf16"),
        (H200, {}, {}, "attention:30, fp32"),
        (H200, BF16, {"tokens": 65536}, "attention, bf16"),
        (H100, {}, {"processes": 8}, "attention, fp32"),
        (H100, {}, {"processes": 8, "gradient_checkpointing": "none"}, "none, fp32"),
        (H200, {"state_precision": "fp32_or_bf16"}, {"tokens": 131072}, "attention:20, bf16"),
    ],
)
def test_a_gpu_begins_with_what_the_estimate_says_will_do(
    make_job, capacity, training, changes, expected
):
    found = _first(make_job, capacity, training, **changes)
    assert found == f"1 row a pass, gradient_checkpointing {expected} states"


def test_attention_is_kept_in_as_many_layers_as_fit_and_in_half_of_them_after_a_failure(make_job):
    base = MODELS.load("llama2_7b")()
    lengths = {"row_length": 32768, "target_context": 32768, "micro_batch_tokens": 32768}
    job = make_job({"precision": "bf16", "tokens_per_step": 256 * 32768}, **lengths)

    def kept(**changes: Any) -> list[str]:
        changed = job.model_copy(update=changes)
        return [one.kept for one in memory.worth_trying(changed, base, GPU, H200)]

    assert kept() == ["attention:30", "attention:16", "full", "offload"]
    # A setting of the user comes first, as it is.
    assert kept(gradient_checkpointing="attention:99")[0] == "attention:99"


def test_memory_that_cannot_suffice_is_refused_before_anything_is_loaded(make_job):
    with pytest.raises(SpecError, match=r"85\.0 GB on each of 1 cuda .* moments 107\.8, .*: bf16"):
        _first(make_job, H100, {})


def test_short_rows_pass_together_as_long_as_they_fit(make_job):
    job = make_job(micro_batch_tokens=8 * ROW_LENGTH)
    assert [one.micro_rows for one in memory.all_fallbacks(job, 2)[:4]] == [8, 4, 2, 1]
    assert memory.worth_trying(job, BASE, GPU, H100)[0].micro_rows == 8
