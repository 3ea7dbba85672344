"""Measure attention of each method: time relative to a reference, and growth of time and memory.

The script first checks each candidate against attention in float64: all queries of a short text,
and some queries at full length. Dense attention computes the reference from the scheme's distances;
landmark's is its own kernel, which the tests compare with the definition. Growth is the CPU time at
twice the length divided by the CPU time at the length. Memory has the output but not the inputs.
LongLoRA's row, of training only, has a forward and a backward pass; the tests check its gradients.
"""

from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from measuring import Row, at_most, compare, measure
from torch.nn.functional import scaled_dot_product_attention
from transformers import LlamaConfig
from transformers.models.llama import modeling_llama

from lce_core.attention import LayerAttention
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.registered import _kernel
from lce_core.attention.rotary import RequestRotary, keep_precision
from lce_core.attention.schemes import (
    BlockRetrieval,
    CacheSinks,
    FullCausal,
    GroupedNeighbour,
    LambdaShaped,
    Rectified,
    ShiftedSparse,
)
from lce_core.contracts.dense import Dense, attend
from lce_core.methods import METHODS
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from tests.support.torch_memory import peak_bytes

THETA, TRAINED, HEAD_DIM = 1e4, 4096, 64
SCALING = HEAD_DIM**-0.5
SHORT, SHORT_WINDOW = 256, 64
CHECKED_ROWS = 12
TOLERANCE = {"float32": 1e-5, "bfloat16": 3e-2, "float16": 4e-3}

States = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Query, key and value before rotation, (1, heads, tokens, head_dim) each."""
Run = Callable[[States], torch.Tensor]


@dataclass(frozen=True)
class Contestant:
    """An attention function on unrotated states, with the reference that it is compared with."""

    name: str
    run: Run
    table: RopeTable
    scheme: Any
    reference: str
    limit: float | None
    """Maximum of its time divided by the reference's time; None without a goal."""


@torch.no_grad()  # not inference_mode: the backward passes below need normal tensors
def rows(options: Namespace) -> Iterator[Row]:
    keep_precision("llama")  # otherwise Llama's rotation converts bf16 states to float32
    errors = check(options)
    inputs, double = (states(options, n * options.length) for n in (1, 2))
    compared = references(options)
    for one in contestants(options, options.length, options.window):
        reference = partial(compared[one.reference], inputs)
        found = compare(partial(one.run, inputs), reference, options.repeats)
        row = {"attention": one.name, "against": one.reference, "time": found.wall}
        row |= {"CPU time": found.cpu, "limit": at_most(found.wall, one.limit)}
        row |= {"error": errors[one.name], "growth": None, "MiB": None}
        if one.reference == "full causal":
            once, twice = (partial(one.run, text) for text in (inputs, double))
            row["growth"] = compare(twice, once, -(-options.repeats // 2)).cpu
        if one.reference != "plain RoPE":
            row["MiB"] = peak_bytes(partial(one.run, inputs)) / 2**20
        yield row


def references(options: Namespace) -> dict[str, Run]:
    config = LlamaConfig(
        hidden_size=options.heads * HEAD_DIM,
        num_attention_heads=options.heads,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
    )

    def full(parts: States) -> torch.Tensor:
        return scaled_dot_product_attention(*parts, is_causal=True, scale=SCALING)

    plain = through_rotary(modeling_llama.LlamaRotaryEmbedding(config), SCALING)
    return {"plain RoPE": plain, "full causal": full, "full causal, trained": trained(full)}


def contestants(options: Namespace, length: int, window: int) -> list[Contestant]:
    """Return all candidates for texts of `length` tokens and windows of `window`."""
    geometry = RopeGeometry(HEAD_DIM, HEAD_DIM, options.heads, options.heads, THETA, TRAINED)
    base = RopeTable(geometry.inv_freq())
    lengths = ContextLengths(TRAINED, 8 * TRAINED, options.length)
    yarn = METHODS.parse({"name": "yarn"}, "perf").rope_table(geometry, lengths)
    thetas = THETA * 2.0 ** np.arange(options.heads)
    per_head = RopeTable(np.stack([geometry.inv_freq(theta) for theta in thetas]))
    full, blocks = FullCausal(), ShiftedSparse(length // 4)
    rotary = RequestRotary(geometry.rotary_dim, identity=False)
    rotary.begin(yarn, 1 << 30)
    through_yarn = through_rotary(rotary, SCALING * yarn.attention_factor**2)
    against = "full causal, trained"
    # Sizes as after training on 512 tokens; for the short text, as after training on 32.
    landmarks = BlockRetrieval(64, 5, 128) if window > SHORT_WINDOW else BlockRetrieval(4, 3, 16)
    schemes: tuple[tuple[str, Any, float | None], ...] = (
        ("lm_infinite", LambdaShaped(window, 10), 1 / 5),
        ("streaming_llm", CacheSinks(window, 4), None),
        ("self_extend", GroupedNeighbour(window, max(1, window // 16)), 2.3),
        ("rerope", Rectified(window), None),
        ("rerope, leak 16", Rectified(window, (16,)), None),
        ("landmark", landmarks, None),
    )
    return [
        *(
            Contestant(name, of_scheme(scheme, base), base, scheme, "full causal", limit)
            for name, scheme, limit in schemes
        ),
        Contestant(
            "longlora, trained", trained(of_scheme(blocks, base)), base, blocks, against, 0.4
        ),
        Contestant("yarn", through_yarn, yarn, full, "plain RoPE", 1.05),
        Contestant(
            "a base per head", of_scheme(full, per_head), per_head, full, "plain RoPE", 1.05
        ),
    ]


def of_scheme(scheme: Any, table: RopeTable) -> Run:
    return lambda parts: _kernel(scheme)(scheme, AttentionInputs(*parts, table, 0, SCALING))


def trained(run: Run) -> Run:
    """Return a function that runs forward and backward pass (of half the sum of squares)."""

    def both(parts: States) -> torch.Tensor:
        with torch.enable_grad():
            query, key, value = (part.detach().requires_grad_() for part in parts)
            output = run((query, key, value))
            torch.autograd.grad(output, (query, key, value), output.detach())
        return output.detach()

    return both


def through_rotary(rotary: torch.nn.Module, scaling: float) -> Run:
    """Return attention as in a stock Llama layer: cosines, rotation, SDPA."""

    def run(parts: States) -> torch.Tensor:
        query, key, value = parts
        cosines = rotary(value, torch.arange(query.shape[2])[None])
        query, key = modeling_llama.apply_rotary_pos_emb(query, key, *cosines)
        return scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)

    return run


def states(options: Namespace, length: int) -> States:
    """Return random query, key, value (1, heads, length, head_dim), with the strides of models."""
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randn((3, 1, length, options.heads, HEAD_DIM), generator=generator)
    query, key, value = drawn.to(getattr(torch, options.dtype)).transpose(2, 3)
    return query, key, value


def check(options: Namespace) -> dict[str, float]:
    """Return each candidate's largest error; raise AssertionError if it exceeds the tolerance."""
    rng = np.random.default_rng(0)
    errors: dict[str, float] = {}
    for length, window in [(SHORT, SHORT_WINDOW), (options.length, options.window)]:
        inputs = states(options, length)
        drawn = rng.choice(length, size=min(CHECKED_ROWS, length), replace=False)
        queries = range(length) if length == SHORT else sorted({*map(int, drawn), length - 1})
        for one in contestants(options, length, window):
            output = one.run(inputs)[0].double()
            apart = [(output[:, row] - defined(one, inputs, row)).abs().max() for row in queries]
            errors[one.name] = max(*map(float, apart), errors.get(one.name, 0.0))
            assert errors[one.name] <= TOLERANCE[options.dtype], (one.name, errors)
    return errors


def defined(one: Contestant, inputs: States, row: int) -> torch.Tensor:
    """Return a query's output (heads, head_dim) in float64."""
    query, key, value = (part[:, :, : row + 1].double() for part in inputs)
    known = AttentionInputs(query[:, :, row:], key, value, one.table, row, SCALING)
    if isinstance(one.scheme, BlockRetrieval):
        return _kernel(one.scheme)(one.scheme, known)[0, :, 0]
    return attend(Dense((LayerAttention(one.table, one.scheme),)), known)[0, :, 0]


if __name__ == "__main__":
    sizes = {"length": 16384, "heads": 8, "window": 1024}
    measure(__doc__, rows, dtype="float32", **sizes, threads=2, repeats=7)
