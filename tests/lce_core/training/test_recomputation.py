"""Strategy: a run that keeps everything is the oracle of every other; what is kept is counted by
the operators that run and by the tensors that autograd saves."""

from collections import Counter
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from lce_core.execution import Execution
from lce_core.extension.kernels import FUSED
from lce_core.methods import METHODS
from lce_core.training import recomputation
from lce_core.training.assembly import LossModel
from lce_core.training.run import run
from tests.support.training_jobs import BASE, ROW_LENGTH, checkpoint, losses, run_alone, silent

LAYERS = BASE.shape.num_layers


class Counted(TorchDispatchMode):
    """Counts operators."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[func.name()] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("kept", "attentions", "products"),
    [("none", LAYERS, 1), ("attention:1", 2 * LAYERS - 1, 2), ("offload", 2 * LAYERS, 2)],
)
def test_what_is_kept_is_not_computed_again(kept, attentions, products):
    model = BASE.initialise(0)
    recomputation.enable(model, kept)
    module = LossModel(model, "fp32", kept).train()
    tokens = torch.arange(2 * ROW_LENGTH).reshape(2, ROW_LENGTH)
    with Counted() as counted:
        module(tokens, torch.ones(2, ROW_LENGTH)).backward()
    ran = sum(count for name, count in counted.calls.items() if name in FUSED)
    assert ran == attentions
    # One activation function in the MLP of a layer.
    assert counted.calls["aten::silu"] == products * LAYERS


@pytest.mark.parametrize(
    ("method", "precision"), [(None, "bf16"), ("longlora", "bf16"), ("clex", "fp32")]
)
def test_what_is_kept_changes_no_bit(make_job, precision, method):
    changes: dict[str, Any] = {"num_steps": 2}
    if method:
        changes["method"] = METHODS.parse({"name": method}, "method").identity()
        changes["target_context"] = 512
    jobs = {
        kept: make_job({"precision": precision}, **changes, gradient_checkpointing=kept)
        for kept in ("none", "attention", "attention:1", "full", "offload")
    }
    facts = {kept: run(job, silent) for kept, job in jobs.items()}
    expected = checkpoint(jobs["none"])
    for kept, job in jobs.items():
        assert losses(job) == losses(jobs["none"]), kept
        found = checkpoint(job)
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items()), kept
        assert facts[kept]["gradient_checkpointing"] == kept
        assert facts[kept]["attention_kernel"] == "torch_flash_cpu"


def test_offload_moves_the_inputs_of_layers_and_nothing_of_their_inside(monkeypatch):
    moved: list[tuple[int, ...]] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        moved.append(tuple(tensor.shape))
        return tensor

    def noting(pin_memory: bool) -> saved_tensors_hooks:
        assert not pin_memory
        return saved_tensors_hooks(pack, lambda tensor: tensor)

    monkeypatch.setattr(torch.autograd.graph, "save_on_cpu", noting)
    model = BASE.initialise(0)
    recomputation.enable(model, "offload")
    module = LossModel(model, "fp32", "offload").train()
    module(torch.zeros(2, ROW_LENGTH, dtype=torch.int64), torch.ones(2, ROW_LENGTH)).backward()
    hidden = (2, ROW_LENGTH, BASE.shape.hidden_size)
    # Beside the layers' inputs, the last norm's: its input, what it normalised and its weight.
    assert LAYERS <= moved.count(hidden) <= LAYERS + 3
    wide = [shape for shape in moved if BASE.shape.intermediate_size in shape]
    assert wide == []


def test_yes_and_no_are_names_too_and_names_that_mean_nothing_are_refused():
    for given, meant in ((True, "full"), (False, "none"), ("auto", "auto")):
        found = Execution.model_validate({"home": "h", "gradient_checkpointing": given})
        assert found.gradient_checkpointing == meant
        assert Execution.model_validate_json(found.model_dump_json()) == found
    for given in ("attention:0", "attention:", "full:3", "most"):
        with pytest.raises(ValidationError, match="gradient_checkpointing"):
            Execution.model_validate({"home": "h", "gradient_checkpointing": given})


@pytest.mark.gpu
@pytest.mark.parametrize("states", ["fp32", "bf16"])
@pytest.mark.parametrize("kernel", ["sdpa", "flash"])
def test_training_on_a_gpu_records_the_kernel_that_ran(make_job, states, kernel):
    training = {"precision": "bf16", "state_precision": states}
    alike = make_job(training, device="cpu")
    job = make_job({**training, "kernel": kernel}, device="cuda", compile_layers=False)
    newer = torch.cuda.get_device_capability() >= (9, 0)
    package = "torch_flash" if find_spec("flash_attn") is None else "flash_attention_2"
    expected = package if kernel == "flash" else "cudnn" if newer else "torch_flash"
    assert run_alone(job)["attention_kernel"] == expected
    run_alone(alike)
    assert losses(job) == pytest.approx(losses(alike), rel=0.02)


@pytest.mark.gpu
@pytest.mark.parametrize("kept", ["attention", "full", "offload"])
def test_what_is_kept_takes_less_of_a_gpu(kept):
    device, held = torch.device("cuda"), {}
    for name in ("none", kept):
        model: Any = BASE.initialise(0).to(device, torch.bfloat16).train()
        recomputation.enable(model, name)
        tokens = torch.zeros(1, 16384, dtype=torch.int64, device=device)
        before = torch.cuda.memory_allocated()
        with recomputation.storage(name, device):
            states = model.model(tokens, use_cache=False).last_hidden_state
        held[name] = torch.cuda.memory_allocated() - before
        states.sum().backward()
    assert held[kept] < 0.6 * held["none"]
