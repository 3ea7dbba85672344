"""Count the memory traffic of updates of bf16 states; compare compiled and uncompiled updates.

torch.compile's scheduler reports kernels and bytes. The kernels are those of the CPU; a GPU gets
the same graph. The ratio is CPU time of the compiled update / the uncompiled update. Needs a
compiler of C++.
"""

import logging
from argparse import Namespace
from collections.abc import Callable, Iterator

import torch
from measuring import Row, compare, measure
from torch._inductor import config, metrics

from lce_core.training.optimizer import GradientSums, RoundedAdamW

SHAPE = (2048, 512)
SECONDS_PER_BYTE = 6.74e9 / 3.35e12
"""Parameters of Llama-2-7B divided by the bytes per second of an H100 SXM's data sheet."""


def adamw(*, compiled: bool) -> Callable[[], None]:
    """Return a function that updates one weight and its moments."""
    weight = torch.nn.Parameter(torch.randn(SHAPE).bfloat16())
    weight.grad = torch.randn(SHAPE).bfloat16()
    return RoundedAdamW(
        {"weight": weight}, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, seed=0, compiled=compiled
    ).step


def gradient_sum(*, compiled: bool) -> Callable[[], None]:
    """Return a function that adds a gradient to a sum."""
    weight = torch.nn.Parameter(torch.zeros(SHAPE).bfloat16())
    sums = GradientSums({"weight": weight}, seed=0, compiled=compiled)

    def add() -> None:
        weight.grad = torch.ones(SHAPE).bfloat16()
        sums._take("weight", weight)

    add()
    return add


def traffic(update: Callable[[], None]) -> tuple[int, int]:
    """Return kernels of a compiled update, and bytes per parameter that they read and write."""
    metrics.reset()
    # Bytes are counted only if someone listens to this log, and not for a graph from the cache.
    log = logging.getLogger("torch._inductor.compile_fx.__inductor_metrics")
    log.setLevel(logging.INFO)
    log.propagate = False
    with config.patch(fx_graph_cache=False):
        update()
    return metrics.generated_kernel_count, metrics.num_bytes_accessed // torch.Size(SHAPE).numel()


def rows(options: Namespace) -> Iterator[Row]:
    for name, make in {"AdamW": adamw, "sum of gradients": gradient_sum}.items():
        compiled, uncompiled = make(compiled=True), make(compiled=False)
        kernels, each = traffic(compiled)
        ratio = compare(compiled, uncompiled, options.repeats).cpu
        figures = {"kernels": kernels, "bytes per parameter": each}
        figures |= {"seconds, 7B on H100": each * SECONDS_PER_BYTE, "CPU ratio": ratio}
        yield {"update": name, **figures}


if __name__ == "__main__":
    measure(__doc__, rows, threads=1, repeats=5)
