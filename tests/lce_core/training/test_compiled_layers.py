"""Strategy: the layers that the trainer builds run uncompiled, then compiled without a code
generator (backend aot_eager), which computes the same operations. Both must agree to the last bit,
and torch must trace each layer as one graph."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch._dynamo.utils import counters

from lce_core.contracts.tiny_models import BASES, LENGTHS
from lce_core.methods import METHODS
from lce_core.training.assembly import Parts, build
from lce_core.training.job import TrainingJob
from lce_core.training.recomputation import attention_layers
from lce_core.training.trainer import Trainer, _Batch
from tests.support.extended_models import method
from tests.support.training_jobs import BASE, ROW_LENGTH, losses, run_alone

# torch's tracer causes warnings and hides them, which fails where warnings are errors.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
CPU = torch.device("cpu")
LENGTH = 128
"""Tokens in a row; a multiple of the length of the pieces that landmark trains on."""
KINDS = {"yarn": "frequencies", "clex": "learned", "harpe": "per head"} | {
    name: name for name in ("landmark", "longlora", "nope_hybrid", "learned_rope")
}
"""One method for each way in which training differs, and the name of the way."""


@pytest.fixture
def one_process() -> Iterator[None]:
    """A process group that contains only this process."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    counters.clear()
    yield
    torch.compiler.reset()


def _job(make_job: Any, name: str, kept: str, **changes: Any) -> TrainingJob:
    identity = METHODS.parse({"name": name, **METHODS.load(name).examples[-1]}, "method").identity()
    given = {"method": identity, "target_context": 512, "gradient_checkpointing": kept}
    job: TrainingJob = make_job({"precision": "bf16"}, **given, **{"row_length": LENGTH} | changes)
    return job


def _gradients(job: TrainingJob, parts: Parts) -> dict[str, torch.Tensor]:
    """Return the loss and the gradients of a pass over two rows."""
    ids, weights = np.arange(2 * LENGTH).reshape(2, -1), np.ones((2, LENGTH), np.float32)
    assert parts.extended is not None
    if parts.extended.inserter:
        ids, weights = parts.extended.inserter.pieces(ids, weights)
    parts.extended.begin_rows(np.arange(len(ids), dtype=np.uint64))
    parts.module.zero_grad()
    loss = parts.module(torch.from_numpy(ids), torch.from_numpy(weights))
    loss.backward()
    found = {"loss": loss.detach()}
    for parameter_name, parameter in parts.module.named_parameters():
        if parameter.grad is not None:
            grad: Any = parameter.grad
            found[parameter_name] = (grad.to_local() if job.sharding == "shard" else grad).clone()
    return found


def _check(job: TrainingJob) -> None:
    parts = build(job, BASE, CPU)
    expected = _gradients(job, parts)
    layers: Any = parts.layers
    assert len(layers) == BASE.shape.num_layers
    for layer in layers:
        layer.compile(backend="aot_eager", dynamic=False)
    found = _gradients(job, parts)
    # Layers that differ have a graph of each kind.
    keeping = attention_layers(job.kept, len(layers))
    kinds = {(one.self_attn.lce_scheme, index < keeping) for index, one in enumerate(layers)}
    assert counters["stats"]["unique_graphs"] == len(kinds)
    assert not counters["graph_break"]
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


def test_there_is_a_method_for_each_way_to_train():
    def way(name: str) -> tuple[object, ...]:
        one, geometry = method(name), BASES[0].geometry
        table = one.rope_table(geometry, LENGTHS)
        scheme = one.training_attention(geometry, LENGTHS)
        insertion = one.insertion(geometry) is not None
        return type(scheme), table.inv_freq.ndim, one.rotary is not None, insertion

    def trains(name: str) -> bool:
        scheme = method(name).training_attention(BASES[0].geometry, LENGTHS)
        return scheme is None or scheme.differentiable

    assert {way(name) for name in METHODS.names() if trains(name)} == {*map(way, KINDS)}


@pytest.mark.parametrize(
    ("name", "kept"),
    [*((name, "attention:1") for name in KINDS), ("nope_hybrid", "none"), ("yarn", "full")],
)
def test_a_layer_is_one_graph_and_computes_the_same(make_job, name, kept):
    _check(_job(make_job, name, kept))


@pytest.mark.parametrize(
    ("name", "kept"),
    [("yarn", "attention:1"), ("nope_hybrid", "full"), ("learned_rope", "full")],
)
def test_a_sharded_layer_is_one_graph_and_computes_the_same(
    make_job, one_process, monkeypatch, name, kept
):
    # A single process never shards by itself.
    monkeypatch.setattr(TrainingJob, "is_sharded", lambda job, device: True)
    _check(_job(make_job, name, kept, sharding="shard"))


@pytest.mark.parametrize(("kept", "sharded"), [("attention:1", False), ("full", True)])
def test_training_compiles_its_layers_before_the_second_pass(
    make_job, one_process, monkeypatch, kept, *, sharded
):
    monkeypatch.setattr(TrainingJob, "is_sharded", lambda job, device: sharded)
    monkeypatch.setattr(Trainer, "_compiled", True)
    compiled: list[nn.Module] = []

    def compile_(layer: nn.Module, **_: object) -> None:
        compiled.append(layer)
        layer._compiled_call_impl = torch.compile(layer._call_impl, backend="aot_eager")

    monkeypatch.setattr(nn.Module, "compile", compile_)
    trainer = Trainer(_job(make_job, "yarn", kept, row_length=ROW_LENGTH), CPU)
    tokens = torch.zeros(2, ROW_LENGTH, dtype=torch.int64)
    batch = _Batch(tokens, torch.ones(2, ROW_LENGTH), None, None)
    decoder: Any = trainer.model.base_model
    for expected in ([], [*decoder.layers], [*decoder.layers]):
        # The backward pass recomputes layers, which must be those of the forward pass.
        trainer._forward(batch).backward()
        assert compiled == expected


@pytest.mark.gpu
def test_compiled_training_on_a_gpu_follows_uncompiled_training(make_job):
    changes = {"device": "cuda", "num_steps": 3, "row_length": ROW_LENGTH}
    compiled, plain = (
        _job(make_job, "yarn", "attention:1", **changes, compile_layers=wanted)
        for wanted in (True, False)
    )
    run_alone(compiled)
    assert counters["stats"]["unique_graphs"]
    run_alone(plain)
    assert losses(compiled) == pytest.approx(losses(plain), rel=0.02)


@pytest.mark.parametrize("name", ["clex", "nope_hybrid"])
def test_ten_layers_stay_within_the_compilers_limit(make_job, name, monkeypatch):
    # Beyond the limit, torch silently runs further layers uncompiled.
    shape = dataclasses.replace(BASE.shape, num_layers=10)
    monkeypatch.setattr(type(BASE), "shape", shape)
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
        _check(_job(make_job, name, "none"))
