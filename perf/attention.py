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

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from attention_definitions import Row, States, defined_by, deviation
from figures import command_line, publish, without_out
from measuring import alternate, peak_memory, ratio, timed
from torch.nn.functional import scaled_dot_product_attention
from transformers import LlamaConfig
from transformers.models.llama import modeling_llama

from lce_core.attention import (
    causal,
    retrieval,
    shifted_sparse,
    windowed,
)
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
from lce_core.methods import METHODS
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from lce_core.store.records import environment

THETA = 1e4
TRAINED = 4096
ID_DIGITS, SHORT_WINDOW = 256, 64
CHECKED_ROWS = 12
BARE = ("full causal", "full causal, trained")
"""References without rotation; they are not checked and not printed."""
TOLERANCE = {"float32": 1e-5, "bfloat16": 3e-2, "float16": 4e-3}

Run = Callable[[States], torch.Tensor]


@dataclass(frozen=True)
class Contestant:
    """An attention function on unrotated states, with the reference that it is compared with."""

    name: str
    run: Run
    row: Row
    reference: str
    limit: float | None
    """Goal for the ratio of its time to the reference's time; None without a goal."""


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="float32", choices=sorted(TOLERANCE))
    parser.add_argument("--length", type=int, default=16384)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--window", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="rows of the table to measure")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_precision("llama")  # otherwise Llama's rotation converts bf16 states to float32
    with torch.no_grad():  # not inference_mode: the backward passes below need normal tensors
        found = measure(options)
    print_table(found)
    publish(found, options.out, found["environment"]["accelerators"])


def measure(options: argparse.Namespace) -> dict[str, Any]:
    errors = check(options)
    inputs = states(options, options.length)
    field = contestants(options, options.length, options.window)
    double = states(options, 2 * options.length)
    rows: list[dict[str, Any]] = []
    for contestant in field.values():
        chosen = options.only is None or contestant.name in options.only
        if contestant.name == contestant.reference or not chosen:
            continue
        reference = partial(field[contestant.reference].run, inputs)
        wall, cpu = ratio(alternate(partial(contestant.run, inputs), reference, options.repeats))
        rows.append(
            {
                "name": contestant.name,
                "reference": contestant.reference,
                "wall": wall,
                "cpu": cpu,
                "limit": contestant.limit,
                "error": errors[contestant.name],
                "growth": None,
                "memory": None,
            }
        )
        if contestant.reference == "full causal":
            rows[-1]["growth"] = growth(options, contestant, inputs, double)
        if contestant.reference in BARE:
            rows[-1]["memory"] = [
                peak_memory(partial(contestant.run, text), options.device)
                for text in (inputs, double)
            ]
        print(rows[-1], file=sys.stderr, flush=True)
    bytes_of_inputs = sum(part.nbytes for part in inputs)
    return {
        "options": without_out(options),
        "rows": rows,
        "inputs": bytes_of_inputs / 2**20,
        "environment": environment(),
    }


def contestants(options: argparse.Namespace, length: int, window: int) -> dict[str, Contestant]:
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
    full = FullCausal()
    found: list[Contestant] = []

    def add(
        name: str,
        run: Run,
        table: RopeTable = base,
        scheme: Any = full,
        reference: str = "full causal",
        limit: float | None = None,
    ) -> None:
        scaling = geometry.head_dim**-0.5 * table.attention_factor**2
        row = partial(defined_by(scheme), scheme, table.inv_freq, scaling)
        found.append(Contestant(name, run, row, reference, limit))

    def of_scheme(kernel: Callable[..., torch.Tensor], scheme: Any, table: RopeTable = base) -> Run:
        return lambda parts: kernel(
            scheme, AttentionInputs(*parts, table, 0, geometry.head_dim**-0.5)
        )

    plain = through_rotary(stock_rotary(options), geometry.head_dim**-0.5)
    add("plain RoPE", plain, reference="plain RoPE")
    full_attention = bare(geometry.head_dim**-0.5)
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
    scaled = geometry.head_dim**-0.5 * yarn.attention_factor**2
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


def stock_rotary(options: argparse.Namespace) -> torch.nn.Module:
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


def states(options: argparse.Namespace, length: int) -> States:
    """Return random query, key, value (1, heads, length, head_dim), with the strides of models."""
    generator = torch.Generator().manual_seed(1)
    shape = (1, length, options.heads, options.head_dim)

    def draw() -> torch.Tensor:
        drawn = torch.randn(shape, generator=generator).to(getattr(torch, options.dtype))
        return drawn.to(options.device).transpose(1, 2)

    return draw(), draw(), draw()


def check(options: argparse.Namespace) -> dict[str, float]:
    """Return each candidate's largest error; raise AssertionError if it exceeds the tolerance."""
    rng = np.random.default_rng(0)
    errors: dict[str, float] = {}
    for length, window in [(ID_DIGITS, SHORT_WINDOW), (options.length, options.window)]:
        inputs = states(options, length)
        drawn = rng.choice(length, size=min(CHECKED_ROWS, length), replace=False)
        rows = range(length) if length == ID_DIGITS else sorted({*map(int, drawn), length - 1})
        for name, contestant in contestants(options, length, window).items():
            error = 0.0
            if name not in BARE and (options.only is None or name in options.only):
                output = contestant.run(inputs)
                error = max(deviation(contestant.row, inputs, output, row) for row in rows)
            errors[name] = max(error, errors.get(name, 0.0))
            assert errors[name] <= TOLERANCE[options.dtype], (name, length, error)
    return errors


def growth(
    options: argparse.Namespace, contestant: Contestant, inputs: States, double: States
) -> float:
    """Return the median of time at twice the length / time at the length."""
    clock = 0 if inputs[0].is_cuda else 1
    once, twice = (partial(contestant.run, text) for text in (inputs, double))
    repeats = range(-(-options.repeats // 2))
    return statistics.median(timed(twice)[clock] / timed(once)[clock] for _ in repeats)


def print_table(found: dict[str, Any]) -> None:
    length = found["options"]["length"]
    print(
        "| attention | against | time | CPU time | limit | error | growth"
        f" | MiB at {length} | x 2 |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|")
    for row in found["rows"]:
        limit = "-" if row["limit"] is None else f"{row['limit']:.2f}"
        grown = "-" if row["growth"] is None else f"{row['growth']:.2f}"
        once, twice = [f"{size:.0f}" for size in row["memory"]] if row["memory"] else "--"
        print(
            f"| {row['name']} | {row['reference']} | {row['wall']:.3f} | {row['cpu']:.3f}"
            f" | {limit} | {row['error']:.0e} | {grown} | {once} | {twice} |"
        )
    print(f"\n{found['options']}, inputs {found['inputs']:.0f} MiB")


if __name__ == "__main__":
    main()
