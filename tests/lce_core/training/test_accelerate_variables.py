"""Variables that `accelerate launch` and notebooks export for Accelerate change no weight."""

import os

import pytest
import torch
from accelerate.utils import GradientAccumulationPlugin

from lce_core.errors import SpecError
from lce_core.training import trainer
from tests.support.training_jobs import run_alone, weights

HOSTILE = {
    "ACCELERATE_MIXED_PRECISION": "bf16",
    "ACCELERATE_DYNAMO_BACKEND": "EAGER",
    "ACCELERATE_USE_FSDP": "true",
    "ACCELERATE_USE_DEEPSPEED": "true",
    "ACCELERATE_USE_MEGATRON_LM": "true",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "true",
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "8",
}


def test_weights_are_those_of_an_empty_environment(make_job, monkeypatch):
    expected = make_job(micro_batch_tokens=128, num_steps=2)  # 4 micro-batches
    run_alone(expected)
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    job = make_job(micro_batch_tokens=128, num_steps=2)
    run_alone(job)
    assert [name for name in os.environ if name.startswith("ACCELERATE_")] == []
    found = weights(job)
    assert all(torch.equal(found[name], tensor) for name, tensor in weights(expected).items())


def test_a_version_of_accelerate_that_accumulates_another_number_trains_nothing(
    make_job, monkeypatch
):
    def changed(num_steps: int) -> GradientAccumulationPlugin:
        return GradientAccumulationPlugin(num_steps=num_steps + 1)

    monkeypatch.setattr(trainer, "GradientAccumulationPlugin", changed)
    with pytest.raises(SpecError, match="5 micro-batches a step from Accelerate; expected 4"):
        run_alone(make_job(micro_batch_tokens=128, num_steps=2))
