"""Limits of Accelerate's FSDP plugin, for which lce shards by itself (docs/training.md). Each test
fails when a release of Accelerate lifts its limit."""

import json
import subprocess
import sys
from typing import Any

import pytest
import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin, debug_launcher
from accelerate.utils import DistributedType
from torch import nn

from tests.support.repository import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What two processes on a CPU find."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.lce_core.training.test_accelerate"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def test_the_plugin_is_ignored_on_a_cpu(found):
    assert found["type"] == DistributedType.MULTI_CPU


def test_an_optimiser_of_weights_on_the_meta_device_gets_one_weight_for_all(found):
    assert (found["weights"], found["optimised"]) == (4, 1)


def _report() -> None:
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
    facts: dict[str, Any] = {"type": accelerator.distributed_type}
    # As on GPUs.
    accelerator.state.distributed_type = DistributedType.FSDP
    accelerator.state.fsdp_plugin = plugin
    model = nn.Sequential(nn.Linear(4, 4, device="meta"), nn.Linear(4, 4, device="meta"))
    prepared = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1.0))
    facts["weights"] = len(list(prepared[0].parameters()))
    facts["optimised"] = len(set(map(id, prepared[1].param_groups[0]["params"])))
    if accelerator.is_main_process:
        sys.stdout.write(json.dumps(facts))


if __name__ == "__main__":
    debug_launcher(_report, num_processes=2)
