"""A training run in bf16 on each device follows the one in fp32 on the CPU, step by step."""

from typing import Any

import pytest
import torch

from lce_core.methods import METHODS
from tests.support.on_devices import over_devices
from tests.support.training_jobs import (
    ROW_LENGTH,
    checkpoint,
    job_maker,
    log,
    run_alone,
)

TRAINED: list[dict[str, Any]] = [
    {"name": "none"},
    {"name": "yarn"},
    {"name": "harpe"},
    {"name": "longlora"},
    {"name": "landmark", "block": 4, "top_k": 13, "train_length": 64},
    {"name": "clex"},
]
"""One of each kind: no table, a table, a base per head, attention of its own, learned tables."""


@over_devices
@pytest.mark.parametrize("method", TRAINED, ids=lambda method: method["name"])
def test_training_on_a_device_follows_fp32_on_the_cpu(device, method, rows, saved_base, tmp_path):
    make = job_maker(rows, tmp_path)
    shared: dict[str, Any] = {
        "method": METHODS.parse(method, "test").identity(),
        "from_scratch": False,
        "base_folder": saved_base,
        "target_context": 512,
        "num_steps": 3,
        "micro_batch_tokens": 3 * ROW_LENGTH,
        "compile_layers": False,
    }
    reference = make({"learning_rate": 1e-3}, **shared)
    run_alone(reference)
    half = {"learning_rate": 1e-3, "precision": "bf16"}
    # On a CPU they give the same bits (test_recomputation.py).
    for checkpointing in ("none", "full", "attention") if device == "cuda" else ("attention",):
        ours = make(half, **shared, device=device, gradient_checkpointing=checkpointing)
        facts = run_alone(ours)
        for mine, theirs in zip(log(ours), log(reference), strict=True):
            assert mine["loss"] == pytest.approx(theirs["loss"], rel=0.02)
            # CLEX's gradient is that of an ODE, hundreds of times the others': bf16 says little.
            if method["name"] != "clex":
                assert mine["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=0.05)
            assert mine["peak_memory_bytes"] > 0
        assert {tensor.dtype for tensor in checkpoint(ours).values()} == {torch.float32}
        assert facts["device"].startswith(device)
