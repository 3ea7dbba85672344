"""Measure attention of each method: time relative to a reference, and growth of time and memory.

The script first checks each candidate against attention in float64, computed from the scheme's
definition: all queries of a short text, and some queries at full length. Then it times the
candidate and its reference one right after the other, in alternating order, and prints the median
ratio of wall seconds and of CPU seconds. On a machine with other load, the ratio of CPU seconds is
more stable. Growth is the time at twice the length divided by the time at the length (CPU time on a
CPU). Memory is the peak of torch's allocator during one call, with the output but without the
inputs, at the length and at twice the length.

LongLoRA's attention is used in training only. Its row measures a forward and a backward pass, and
its memory includes gradients. The tests check its gradients.

    python perf/attention.py [--device cuda --dtype bfloat16] [--out FILE.json]
"""

from __future__ import annotations

import statistics
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from measuring import Row, at_most, compare, measure, peak_memory, timed
from torch.nn.functional import scaled_dot_product_attention
from transformers import LlamaConfig
from transformers.models.llama import modeling_llama

from lce_core.attention import LayerAttention, causal, retrieval, shifted_sparse, windowed
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.layers import keep_precision
from lce_core.attention.rotary import RequestRotary
from lce_core.attention.schemes import (
    BlockRetrieval,
    CacheSinks,
    FullCausal,
    GroupedNeighbour,
    LambdaShaped,
    Rectified,
    ShiftedSparse,
)
from lce_core.contracts.dense import Dense, _scores, attend
from lce_core.methods import METHODS
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable

THETA = 1e4
TRAINED = 4096
SHORT, SHORT_WINDOW = 256, 64
CHECKED_ROWS = 12
BARE = ("full causal", "full causal, trained")
"""References without rotation; they are not checked and not printed."""
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
    field = contestants(options, options.length, options.window)
    for one in field.values():
        if one.name == one.reference or one.name not in (options.only or field):
            continue
        reference = partial(field[one.reference].run, inputs)
        found = compare(partial(one.run, inputs), reference, options.repeats)
        row = {"attention": one.name, "against": one.reference, "time": found.wall}
        row |= {"CPU time": found.cpu, "limit": at_most(found.wall, one.limit)}
        row |= {"error": errors[one.name], "growth": None, "MiB": None, "MiB of twice": None}
        if one.reference == "full causal":
            row["growth"] = growth(options, one, inputs, double)
        if one.reference in BARE:
            for title, text in (("MiB", inputs), ("MiB of twice", double)):
                row[title] = peak_memory(partial(one.run, text), options.device)
        yield row


def contestants(options: Namespace, length: int, window: int) -> dict[str, Contestant]:
    """Return all candidates by name, for texts of `length` tokens and windows of `window`."""
    geometry = RopeGeometry(
        options.head_dim, options.head_dim, options.heads, options.heads, THETA, TRAINED
    )
    base = RopeTable(geometry.inv_freq())
    lengths = ContextLengths(TRAINED, 8 * TRAINED, options.length)
    yarn = METHODS.parse({"name": "yarn"}, "perf").rope_table(geometry, lengths)
    thetas = THETA * 2.0 ** np.arange(options.heads)
    per_head = RopeTable(np.stack([geometry.inv_freq(theta) for theta in thetas]))
    group = max(1, window // 16)
    full, scaling = FullCausal(), geometry.head_dim**-0.5
    found: list[Contestant] = []

    def add(
        name: str,
        run: Run,
        table: RopeTable = base,
        scheme: Any = full,
        reference: str = "full causal",
        limit: float | None = None,
    ) -> None:
        found.append(Contestant(name, run, table, scheme, reference, limit))

    def of_scheme(kernel: Callable[..., torch.Tensor], scheme: Any, table: RopeTable = base) -> Run:
        return lambda parts: kernel(scheme, AttentionInputs(*parts, table, 0, scaling))

    plain = through_rotary(stock_rotary(options), scaling)
    add("plain RoPE", plain, reference="plain RoPE")
    full_attention = bare(scaling)
    add("full causal", full_attention, reference="full causal")
    add("full causal, trained", trained(full_attention), reference="full causal, trained")
    sinks, first = CacheSinks(window, 4), LambdaShaped(window, 10)
    add("lm_infinite", of_scheme(windowed.attend, first), scheme=first, limit=1 / 5)
    add("streaming_llm", of_scheme(windowed.attend, sinks), scheme=sinks)
    grouped = GroupedNeighbour(window, group)
    add("self_extend", of_scheme(windowed.attend, grouped), scheme=grouped, limit=2.3)
    for name, scheme in [("rerope", Rectified(window)), ("rerope, leak 16", Rectified(window, 16))]:
        add(name, of_scheme(windowed.attend, scheme), scheme=scheme)
    blocks = ShiftedSparse(length // 4)
    add(
        "longlora, trained",
        trained(of_scheme(shifted_sparse.attend, blocks)),
        scheme=blocks,
        reference="full causal, trained",
        limit=0.4,
    )
    # Sizes as after training on 512 tokens; for the short text, as after training on 32.
    landmarks = BlockRetrieval(64, 5, 128) if window > SHORT_WINDOW else BlockRetrieval(4, 3, 16)
    add("landmark", of_scheme(retrieval.attend, landmarks), scheme=landmarks)
    scaled = scaling * yarn.attention_factor**2
    for name, stock in [("yarn", False), ("yarn, stock rotation", True)]:
        rotary = RequestRotary(geometry.rotary_dim, identity=False)
        rotary.stock_precision = stock
        rotary.begin(yarn, 1 << 30)
        limit = None if stock else 1.05
        add(name, through_rotary(rotary, scaled), yarn, reference="plain RoPE", limit=limit)
    run = of_scheme(causal.full_causal, full, per_head)
    add("a base per head", run, per_head, reference="plain RoPE", limit=1.05)
    return {contestant.name: contestant for contestant in found}


def bare(scaling: float) -> Run:
    """Return full causal SDPA without rotation."""
    return lambda parts: scaled_dot_product_attention(*parts, is_causal=True, scale=scaling)


def trained(run: Run) -> Run:
    """Return a function that runs forward and backward pass (of half the sum of squares)."""

    def both(parts: States) -> torch.Tensor:
        with torch.enable_grad():
            query, key, value = (part.detach().requires_grad_() for part in parts)
            output = run((query, key, value))
            torch.autograd.grad(output, (query, key, value), output.detach())
        return output.detach()

    return both


def stock_rotary(options: Namespace) -> torch.nn.Module:
    config = LlamaConfig(
        hidden_size=options.heads * options.head_dim,
        num_attention_heads=options.heads,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
    )
    return modeling_llama.LlamaRotaryEmbedding(config).to(options.device)


def through_rotary(rotary: torch.nn.Module, scaling: float) -> Run:
    """Return attention as in a stock Llama layer: cosines, rotation, SDPA."""

    def run(parts: States) -> torch.Tensor:
        query, key, value = parts
        positions = torch.arange(query.shape[2], device=query.device)[None]
        cosines = rotary(value, positions)
        query, key = modeling_llama.apply_rotary_pos_emb(query, key, *cosines)
        return scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)

    return run


def states(options: Namespace, length: int) -> States:
    """Return random query, key, value (1, heads, length, head_dim), with the strides of models."""
    generator = torch.Generator().manual_seed(1)
    shape = (1, length, options.heads, options.head_dim)

    def draw() -> torch.Tensor:
        drawn = torch.randn(shape, generator=generator).to(getattr(torch, options.dtype))
        return drawn.to(options.device).transpose(1, 2)

    return draw(), draw(), draw()


def check(options: Namespace) -> dict[str, float]:
    """Return each candidate's largest error; raise AssertionError if it exceeds the tolerance."""
    rng = np.random.default_rng(0)
    errors: dict[str, float] = {}
    for length, window in [(SHORT, SHORT_WINDOW), (options.length, options.window)]:
        inputs = states(options, length)
        drawn = rng.choice(length, size=min(CHECKED_ROWS, length), replace=False)
        queries = range(length) if length == SHORT else sorted({*map(int, drawn), length - 1})
        for name, one in contestants(options, length, window).items():
            if name not in BARE and name in (options.only or [name]):
                output = one.run(inputs)[0].cpu().double()
                apart = [
                    (output[:, row] - defined(one, inputs, row)).abs().max() for row in queries
                ]
                errors[name] = max(*map(float, apart), errors.get(name, 0.0))
                assert errors[name] <= TOLERANCE[options.dtype], (name, length, errors[name])
    return errors


def defined(one: Contestant, inputs: States, row: int) -> torch.Tensor:
    """Return a query's output (heads, head_dim) in float64, by the definition of the scheme."""
    query, key, value = (part.cpu()[:, :, : row + 1].double() for part in inputs)
    if isinstance(one.scheme, BlockRetrieval):
        return block_retrieval(one.scheme, one.table, (query, key, value))
    dense = Dense((LayerAttention(one.table, one.scheme),))
    return attend(dense, AttentionInputs(query[:, :, row:], key, value, one.table, row, 0.0))[
        0, :, 0
    ]


def block_retrieval(scheme: BlockRetrieval, table: RopeTable, inputs: States) -> torch.Tensor:
    """Return grouped-softmax attention of the last query, over its chunk and retrieved blocks."""
    query, key, value = (part[0] for part in inputs)
    row = query.shape[1] - 1
    block, start = scheme.block, row // scheme.chunk * scheme.chunk
    blocks, own = start // block, row // block * block
    top_k = min(scheme.top_k, blocks)
    scaling = query.shape[-1] ** -0.5 * table.attention_factor**2

    def scores(keys: Sequence[int], slots: Sequence[int]) -> torch.Tensor:
        """Return scores of keys whose blocks are placed `slot` blocks before the query's chunk."""
        steps = [row - start + s * block - k % block for k, s in zip(keys, slots, strict=True)]
        distances = torch.tensor(steps, dtype=torch.float64)[None, :, None]
        angles = distances * torch.from_numpy(table.inv_freq)
        return _scores(query[:, row:], key[:, list(keys)], angles)[:, 0] * scaling

    back = [min(blocks - b, top_k + 1) for b in range(blocks)]
    gates = scores([b * block + block - 1 for b in range(blocks)], back) if blocks else None
    outputs = []
    for head in range(len(value)):
        picks = [] if gates is None else sorted(gates[head].topk(top_k).indices.tolist())
        slots = [top_k + 1 - j - (b >= blocks - top_k) for j, b in enumerate(picks)]
        groups = [
            *zip(picks, slots, strict=True),
            *((b, blocks - b) for b in range(start // block, own // block)),
        ]
        tokens = list(range(own, min(row, own + block - 2) + 1))
        outer = [scores(tokens, [blocks - own // block] * len(tokens))[head]]
        read = [value[head, tokens]]
        for b, slot in groups:
            inside = scores(range(b * block, b * block + block), [slot] * block)[head]
            outer.append(inside[-1:])
            read.append(
                inside[:-1].softmax(-1)[None] @ value[head, b * block : (b + 1) * block - 1]
            )
        outputs.append(torch.cat(outer).softmax(-1) @ torch.cat(read))
    return torch.stack(outputs)


def growth(options: Namespace, contestant: Contestant, inputs: States, double: States) -> float:
    """Return the median of time at twice the length / time at the length."""
    clock = 0 if inputs[0].is_cuda else 1
    once, twice = (partial(contestant.run, text) for text in (inputs, double))
    repeats = range(-(-options.repeats // 2))
    return statistics.median(timed(twice)[clock] / timed(once)[clock] for _ in repeats)


if __name__ == "__main__":
    sizes = {"length": 16384, "heads": 8, "head_dim": 64, "window": 1024}
    measure(__doc__, rows, device="auto", dtype="float32", **sizes, threads=2, repeats=7, only=())
