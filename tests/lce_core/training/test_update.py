"""Strategy: an update of a whole tensor, in one block and uncompiled, is the oracle. Updates of its
shards, in small blocks or compiled, must equal it bit for bit. The shards are real DTensors of a
process group that exchanges nothing."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch._dynamo.utils import counters
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from lce_core.training import optimizer
from lce_core.training.optimizer import GradientSums, RoundedAdamW
from tests.support.compiling import fresh_compiler, needs_compiler

SHAPE = (7, 33)


def _values(number: int, shape: tuple[int, ...] = SHAPE) -> Tensor:
    generator = torch.Generator().manual_seed(number)
    return torch.randn(shape, generator=generator).bfloat16()


def _shard(whole: Tensor, rank: int, processes: int) -> Tensor:
    """Return the rows of process `rank`, as fully_shard divides a tensor."""
    if processes == 1:
        return whole.clone()
    chunks = torch.chunk(whole, processes)
    own = chunks[rank].clone() if rank < len(chunks) else whole[:0].clone()
    mesh = init_device_mesh("cpu", (processes,))
    return DTensor.from_local(own, mesh, [Shard(0)], shape=whole.shape, stride=whole.stride())


def _trained(rank: int = 0, processes: int = 1, *, compiled: bool = False) -> list[Tensor]:
    """Train three steps of three gradients each; return this process's weights and moments."""
    weight = torch.nn.Parameter(_shard(_values(0), rank, processes))
    named = {"weight": weight}
    settings: dict[str, Any] = {"lr": 1e-3, "betas": (0.9, 0.95), "weight_decay": 0.1}
    optimizer = RoundedAdamW(named, seed=3, compiled=compiled, **settings)
    sums = GradientSums(named, seed=3, compiled=compiled)
    for step in range(3):
        sums.begin(step)
        for number in range(3):
            weight.grad = _shard(_values(1 + 3 * step + number), rank, processes)
            sums._take("weight", weight)
        sums.give_back()
        optimizer.clip(1.0, lambda _: 2.0)
        optimizer.step()
    state = optimizer.state[weight]
    found = (weight.detach(), state["exp_avg"], state["exp_avg_sq"])
    return [each.to_local() if isinstance(each, DTensor) else each for each in found]


@pytest.mark.parametrize("processes", [2, 5])
def test_shards_are_updated_like_the_whole(processes):
    parts = []
    for rank in range(processes):
        dist.init_process_group("fake", rank=rank, world_size=processes, store=FakeStore())
        parts.append(_trained(rank, processes))
        dist.destroy_process_group()
    for whole, *shards in zip(_trained(), *parts, strict=True):
        assert torch.equal(torch.cat(shards), whole)


@pytest.mark.parametrize("size", [1, 50])
def test_blocks_are_updated_like_the_whole(monkeypatch, size):
    whole = _trained()
    monkeypatch.setitem(optimizer._BLOCK, "cpu", size)
    assert all(map(torch.equal, _trained(), whole))


@needs_compiler
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_compiled_updates_equal_uncompiled_ones():
    with fresh_compiler():
        found = _trained(compiled=True)
        # One graph adds gradients, one updates the weight.
        assert counters["stats"]["unique_graphs"] == 2
        assert not counters["graph_break"]
    assert all(map(torch.equal, found, _trained()))
