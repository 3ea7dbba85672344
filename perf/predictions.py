"""Predict memory and speed of training Llama-2-7B on rows of 32,768 tokens, without a GPU.

Memory is the estimate that a training run uses to choose what its layers keep. Time is a sum of
parts, each the work of a part divided by a rate (`Rates`):

- products: 2 FLOPs per weight and token forwards, 4 backwards, 2 for recomputed layers;
- attention: 2 n d L FLOPs per token forwards, 5 n d L backwards (five products instead of four),
  and 2 n d L where it is recomputed; n layers, d hidden size, L tokens of a row;
- passes over memory: bytes that all other operations read and write, counted on tensors without
  values (layers that are not compiled), or only the inputs and outputs of each chain of operations
  between two products (compiled layers);
- launches: those of the table of launches, three times per layer and row, and once more where the
  layer is recomputed;
- states: bytes of gradient sums per row and of the update per step, for each parameter;
- gathers: weights twice and fp32 gradients once per row. The sum leaves them out, because they run
  beside the products; they cost time only where they take longer.
"""

from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch
from launches import WINDOW as ROW
from launches import Operations, plugin
from measuring import Row, alike, markdown, page_tables
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import AutoModelForCausalLM, masking_utils

from lce_core.methods import METHODS
from lce_core.models import MODELS, LanguageModel
from lce_core.recipe import Training
from lce_core.study.cost import matmul_parameters, num_parameters, training_flops
from lce_core.training import recomputation
from lce_core.training.assembly import LossModel
from lce_core.training.job import TrainingJob
from lce_core.training.memory import need, worth_trying
from tests.support.training_jobs import training_job

BASE: LanguageModel = MODELS.load("llama2_7b")()
ROWS_PER_STEP = 256
"""Rows of a step in recipe lceg_code."""
H100_BYTES = 85_000_000_000
"""Memory that the driver of an 80 GB H100 reports."""
H100_PEAK_FLOPS = 989e12
"""Dense bf16 peak in FLOP/s, from the data sheet."""
GPU = torch.device("cuda", 0)


@dataclass(frozen=True)
class Rates:
    """Assumed rates of one H100 (SXM)."""

    products: float = 700e12
    """FLOP/s of bf16 products: 0.71 of the data sheet's 989e12, assumed."""
    forwards: float = 595e12
    backwards: float = 480e12
    """FLOP/s of cuDNN's attention with head dimension 128 at 16k tokens: forwards as printed in
    figure 5 of arXiv:2407.08608 (FlashAttention-3), backwards assumed."""
    memory: float = 0.8 * 3.35e12
    """Bytes/s: 80 % of the data sheet's bandwidth, an assumption."""
    links: float = 0.8 * 450e9
    """Bytes/s in each direction over NVLink: half of the data sheet's 900 GB/s, 0.8 assumed."""
    launch: float = 5e-6
    """Seconds per launch, assumed."""


FLASH_2 = Rates(forwards=370e12, backwards=300e12)
"""FlashAttention-2 in the same figure, which torch's own flash kernel contains."""
LAUNCHES = 38
"""Launches of a layer's forward pass; `page_tables` has them by method."""
UPDATE_BYTES = {("fp32", True): 32, ("bf16", True): 14, ("bf16", False): 371}
"""Bytes per parameter that an update reads and writes, by states and whether it is compiled. fp32:
fused AdamW reads 16 and writes 12, clipping reads 4. bf16: the page's section on the optimizer."""
SUM_BYTES = {("fp32", True): 12, ("bf16", True): 6, ("bf16", False): 109}
"""Bytes per parameter that adding a row's gradients to their sum reads and writes; as above."""


def job(method: str, states: str, processes: int) -> TrainingJob:
    """Return a training run of Llama-2-7B with one row per pass, as recipe lceg_code trains it."""
    training = {"learning_rate": 2e-5, "tokens_per_step": ROWS_PER_STEP * ROW, "precision": "bf16"}
    return training_job(
        BASE,
        Path(),
        ROW,
        method=plugin(method).identity(),
        training=Training.model_validate({**training, "state_precision": states}),
        num_steps=1,
        micro_batch_tokens=ROW,
        processes=processes,
    )


def memory(method: str) -> Row:
    """Return what layers keep and the memory of a run on one H100 and on each of eight."""
    found: dict[str, str] = {}
    for where, gigabytes, states, processes in (
        ("one H100, bf16 states: kept", "GB", "bf16", 1),
        ("eight H100s, fp32 states: kept", "GB each", "fp32", 8),
    ):
        run = job(method, states, processes)
        first = worth_trying(run, BASE, GPU, H100_BYTES)[0]
        found[where] = f"`{first.kept}`"
        found[gigabytes] = f"{need(first, BASE, GPU).total / 1e9:.1f}"
    return found


def memory_table() -> str:
    trained = [name for name in METHODS.names() if METHODS.load(name).training != "none"]
    return markdown(alike(trained, memory))


def eager_bytes(states: str, kept: str) -> float:
    """Return the bytes per token that one layer's operations read and write in both passes.

    Products and attention do not count.
    """
    totals = []
    for layers in (1, 2):
        config = BASE.config()  # type: ignore[attr-defined]
        config.num_hidden_layers = layers
        dtype = torch.bfloat16 if states == "bf16" else torch.float32
        moved: list[int] = []

        def count(name: str, tensors: list[torch.Tensor], moved: list[int] = moved) -> None:
            if not any(part in name for part in ("mm", "attention", "empty", "prim")):
                moved.append(sum(tensor.nbytes for tensor in tensors))

        with (
            FakeTensorMode(),
            mock.patch.object(masking_utils, "find_packed_sequence_indices", return_value=None),
        ):
            model = AutoModelForCausalLM.from_config(
                config, dtype=dtype, attn_implementation="sdpa"
            )
            recomputation.enable(model, kept)
            module = LossModel(model, "bf16" if states == "fp32" else "fp32", kept).train()
            ids, weights = torch.zeros(1, ROW, dtype=torch.int64), torch.ones(1, ROW)
            with Operations(count):
                module(ids, weights).backward()
        totals.append(sum(moved))
    return (totals[1] - totals[0]) / ROW


def compiled_bytes(states: str) -> float:
    """Return the same for compiled layers that recompute their forward pass."""
    shape, element = BASE.shape, 4 if states == "fp32" else 2
    # Forwards: two norms read the residual stream (2) and write their output (2); two sums read two
    # inputs and write one (6); gate, up and their product (3 m). Rotation: queries and keys, read
    # and written (4). The backward pass moves twice as much.
    residual, others = 8 * shape.hidden_size, 6 * shape.hidden_size + 3 * shape.intermediate_size
    return 4.0 * (element * residual + 2 * others)


@dataclass(frozen=True)
class Way:
    """One way to train."""

    name: str
    states: str
    kept: str
    rates: Rates = Rates()
    compiled: bool = True
    processes: int = 1


WAYS = (
    Way("one, everything recomputed, FA2, not compiled", "bf16", "full", FLASH_2, compiled=False),
    Way("one, everything recomputed, not compiled", "bf16", "full", compiled=False),
    Way("one, attention kept, not compiled", "bf16", "attention", compiled=False),
    Way("one, attention kept", "bf16", "attention"),
    Way("eight, attention kept", "fp32", "attention", processes=8),
)


def seconds(way: Way) -> dict[str, float]:
    """Return the seconds of each part for one row on one GPU."""
    rates, shape, parameters = way.rates, BASE.shape, num_parameters(BASE)
    weights = matmul_parameters(shape, BASE.geometry)
    head = shape.vocab_size * shape.hidden_size
    width = BASE.geometry.num_heads * BASE.geometry.head_dim
    unit = shape.num_layers * width * ROW * ROW
    again = way.kept == "full"
    passed = compiled_bytes(way.states) if way.compiled else eager_bytes(way.states, way.kept)
    held = parameters / way.processes
    rows, kind = ROWS_PER_STEP / way.processes, (way.states, way.compiled)
    return {
        "products": ROW * (6 * weights + 2 * (weights - head)) / rates.products,
        "attention": unit * (2 * (1 + again) / rates.forwards + 5 / rates.backwards),
        "memory": ROW * shape.num_layers * passed / rates.memory,
        "launches": 4 * LAUNCHES * shape.num_layers * rates.launch,
        "states": held * (SUM_BYTES[kind] + UPDATE_BYTES[kind] / rows) / rates.memory,
        "gathers": 12 * parameters * (way.processes - 1) / way.processes / rates.links,
    }


def time_table() -> str:
    flops, rows = training_flops(BASE.shape, BASE.geometry, ROW), []
    for way in WAYS:
        found = seconds(way)
        gathers = found.pop("gathers")
        total = sum(found.values())
        shown = {name: f"{part:.2f}" for name, part in (found | {"sum": total}).items()}
        row = {"H100s": way.name, "state precision": way.states, **shown}
        row |= {"gathers": f"{gathers:.2f}", "tokens/s per GPU": ROW / total}
        rows.append({**row, "MFU": f"{ROW / total * flops / H100_PEAK_FLOPS:.2f}"})
    return markdown(rows)


TABLES = {"memory": memory_table, "time": time_table}

if __name__ == "__main__":
    page_tables(__doc__, TABLES)
