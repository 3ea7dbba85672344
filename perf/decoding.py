"""Measure the generation of one token: kernels, bytes, and time against transformers' generate().

Caches are filled with random keys and values, because processing a long prompt would take too long;
weights are random, because the cost does not depend on their values. The script first checks the
answers: of the model without a method against generate(), and of every method against the same
method with transformers' DynamicCache. Then it times both sides one right after the other, in
alternating order, and prints the median ratio of wall and of CPU seconds.

Kernels are torch operations that compute or copy, counted per layer for one token of one text.
Bytes are the sizes of all tensors that these kernels read and write, without weights, divided by
the size of the layer's keys and values in the cache.

    python perf/decoding.py [--out FILE.json]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from figures import command_line, publish, without_out
from measuring import alternate, ratio
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, DynamicCache

from lce_core.evaluation.decoding import _answers, _prefill, _Settings
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from lce_core.models import MODELS
from lce_core.store.records import environment

Answers = list[list[int]]


@dataclass(frozen=True)
class Contestant:
    """A method to measure."""

    label: str
    parameters: dict[str, Any]
    limit: float | None = None
    """Goal for its time at 8,192 tokens, divided by the time without a method."""


METHODS_TIMED = (
    Contestant("none", {"name": "none"}),
    Contestant("yarn", {"name": "yarn"}),
    Contestant("harpe", {"name": "harpe", "bases": "uniform_ascending"}, 1.3),
    Contestant("self_extend", {"name": "self_extend"}, 1.3),
    Contestant("rerope", {"name": "rerope"}),
    Contestant("lm_infinite", {"name": "lm_infinite", "window": 1024}, 0.8),
    Contestant("streaming_llm", {"name": "streaming_llm", "window": 1024}, 0.8),
)
FASTER_THAN_GENERATE = 1.5
"""Goal for the time of generate() divided by ours, without a method."""


def main(arguments: list[str] | None = None) -> None:
    parser = command_line(__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--model", default="smollm2_135m")
    parser.add_argument("--layers", type=int, help="layers of the model; default: all")
    parser.add_argument("--window", type=int, default=1024, help="window of window methods")
    parser.add_argument("--stock-length", type=int, default=2048)
    parser.add_argument("--stock-batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--new-tokens", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="+", metavar="METHOD", help="measure only these and none")
    parser.add_argument("--no-times", action="store_true", help="only count kernels and bytes")
    options = parser.parse_args(arguments)
    threads = torch.get_num_threads()
    torch.set_num_threads(options.threads)
    try:
        with torch.no_grad():
            found = measure(options)
    finally:
        torch.set_num_threads(threads)
    print_tables(found)
    publish(found, options.out, found["environment"]["accelerators"])


def measure(options: argparse.Namespace) -> dict[str, Any]:
    counts = [counted(options, one) for one in chosen(options)]
    times = [] if options.no_times else [*against_generate(options), *against_stock(options)]
    return {
        "options": without_out(options),
        "counts": counts,
        "times": times,
        "environment": environment(),
    }


def chosen(options: argparse.Namespace) -> list[Contestant]:
    """Return "none" and the methods of --only (all methods without --only)."""
    return [
        one
        for one in METHODS_TIMED
        if options.only is None or one.label == "none" or one.label in options.only
    ]


# Models and caches


def stock_model(options: argparse.Namespace) -> Any:
    """Return the base model with random weights, without any method."""
    base: Any = MODELS.parse({"name": options.model}, "perf")
    config = base.config()
    config.num_hidden_layers = options.layers or config.num_hidden_layers
    config.eos_token_id = None  # all answers have the same number of tokens
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    return model.to(options.device, getattr(torch, options.dtype)).eval()


def extended(options: argparse.Namespace, one: Contestant, stock: Any, length: int) -> Any:
    """Return the model with the method applied, ready for `length` plus new tokens."""
    base = MODELS.parse({"name": options.model}, "perf")
    parameters = dict(one.parameters)
    if "window" in parameters:
        parameters["window"] = options.window
    method = METHODS.parse(parameters, "perf")
    model = extend(stock, base, method, target=length + options.new_tokens)
    model.begin_request(length + options.new_tokens)
    return model


def states(model: Any, batch: int, length: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return random keys and values (batch, kv_heads, length, head_dim) for every layer."""
    geometry, generator = model.geometry, torch.Generator(model.model.device).manual_seed(0)
    shape = (batch, geometry.num_kv_heads, length, geometry.head_dim)
    made = {"generator": generator, "dtype": model.model.dtype, "device": model.model.device}
    layers = range(model.model.config.num_hidden_layers)
    return [(torch.randn(shape, **made), torch.randn(shape, **made)) for _ in layers]


def filled(cache: DynamicCache, parts: list[tuple[torch.Tensor, torch.Tensor]]) -> DynamicCache:
    """Append the keys and values of each layer to a cache; return the cache."""
    for layer, (keys, values) in enumerate(parts):
        cache.update(keys, values, layer)
    return cache


def last_tokens(model: Any, batch: int) -> torch.Tensor:
    """Return a different last prompt token (batch, 1) for each text."""
    return torch.arange(batch, device=model.device)[:, None] + 5


def answers(model: ExtendedModel, cache: DynamicCache, batch: int, number: int) -> Answers:
    """Decode `number` tokens of each text from the cache, then restore the cache."""
    length = cache.get_seq_length()
    settings = _Settings(number, [lambda _: False] * batch, 1 << 30, 1 << 30, False)
    states = _prefill(model, last_tokens(model.model, batch), settings, cache)
    found = _answers(model, range(batch), states, settings, cache)
    cache.crop(length - cache.get_seq_length())
    return [answer.tolist() for answer in found]


def generated(stock: Any, cache: DynamicCache, batch: int, number: int) -> Answers:
    """Decode with transformers' generate(), then restore the cache."""
    length = cache.get_seq_length()
    last = last_tokens(stock, batch)
    ids = torch.cat([last.expand(batch, length), last], dim=1)
    found = stock.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        past_key_values=cache,
        max_new_tokens=number,
        do_sample=False,
        pad_token_id=0,
    )
    cache.crop(length - cache.get_seq_length())
    return found[:, length + 1 :].tolist()


# Counts


class Counted(TorchDispatchMode):
    """Count kernels and the bytes they read and write, without the weights.

    Args:
      weights: data pointers of the storages of the weights.
    """

    def __init__(self, weights: set[int]) -> None:
        super().__init__()
        self.weights, self.kernels, self.bytes = weights, 0, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        returned = func._schema.returns
        view = any(one.alias_info is not None and not one.alias_info.is_write for one in returned)
        if view or "empty" in func.name() or "local_scalar" in func.name():
            return result
        touched = {}
        for one in torch.utils._pytree.tree_leaves((args, kwargs, result)):
            if (
                isinstance(one, torch.Tensor)
                and one.untyped_storage().data_ptr() not in self.weights
            ):
                touched[one.data_ptr(), one.shape, one.stride()] = one.numel() * one.element_size()
        self.kernels += 1
        self.bytes += sum(touched.values())
        return result


def counted(options: argparse.Namespace, one: Contestant) -> dict[str, Any]:
    """Return kernels and relative bytes per layer: the difference of a 2- and a 1-layer model."""
    found = []
    for layers in (1, 2):
        few = argparse.Namespace(**{**vars(options), "layers": layers})
        model = extended(few, one, stock_model(few), options.length)
        parts = states(model, 1, options.length)
        cache = filled(model.new_cache(options.length + options.new_tokens), parts)
        tokens = last_tokens(model.model, 1)
        model.hidden_states(tokens, cache)  # rotates the cached keys once, which is not counted
        weights = {part.untyped_storage().data_ptr() for part in model.model.parameters()}
        with Counted(weights) as count:
            model.hidden_states(tokens, cache)
        found.append((count.kernels, count.bytes))
    held = sum(part.nbytes for part in parts[0])
    kernels, moved = (more - less for less, more in zip(*found, strict=True))
    return {"method": one.label, "kernels": kernels, "moved": moved / held}


# Times


def against_generate(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Compare decoding without a method with transformers' generate()."""
    batch, length, number = options.stock_batch, options.stock_length, options.new_tokens
    stock = stock_model(options)
    model = extended(options, METHODS_TIMED[0], stock_model(options), length)
    parts = states(model, batch, length)
    ours, theirs = filled(model.new_cache(length + number), parts), filled(DynamicCache(), parts)

    def here() -> Answers:
        return answers(model, ours, batch, number)

    def there() -> Answers:
        return generated(stock, theirs, batch, number)

    assert here() == there(), "answers of the stock model differ from generate()'s"
    row = compared("generate() against none", there, here, options, batch, length)
    return [{**row, "limit": FASTER_THAN_GENERATE, "kept": row["ratio"] >= FASTER_THAN_GENERATE}]


def against_stock(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Compare decoding with each method with decoding without a method."""
    batch, length, number = options.batch, options.length, options.new_tokens
    first, *others = chosen(options)
    stock = extended(options, first, stock_model(options), length)
    parts = states(stock, batch, length)
    plain = filled(stock.new_cache(length + number), parts)
    rows = []
    for one in others:
        model = extended(options, one, stock_model(options), length)
        expected = answers(model, filled(DynamicCache(), parts), batch, number)
        cache = filled(model.new_cache(length + number), parts)

        def here(model: Any = model, cache: Any = cache) -> Answers:
            return answers(model, cache, batch, number)

        assert here() == expected, f"answers of {one.label} depend on the type of its cache"
        row = compared(
            f"{one.label} against none",
            here,
            lambda: answers(stock, plain, batch, number),
            options,
            batch,
            length,
        )
        rows.append({**row, "limit": one.limit, "kept": row["ratio"] <= (one.limit or 1e9)})
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def compared(
    name: str,
    first: Callable[[], Answers],
    second: Callable[[], Answers],
    options: argparse.Namespace,
    batch: int,
    length: int,
) -> dict[str, Any]:
    """Return the median of first time / second time, and milliseconds per token of both."""
    pairs = alternate(first, second, options.repeats)
    wall, cpu = ratio(pairs)
    milliseconds = [
        1000 * statistics.median(one.wall for one in side) / options.new_tokens
        for side in zip(*pairs, strict=True)
    ]
    return {
        "name": name,
        "batch": batch,
        "length": length,
        "ratio": wall,
        "cpu": cpu,
        "milliseconds": milliseconds,
        "tokens_per_second": [1000 * batch / step for step in milliseconds],
    }


def print_tables(found: dict[str, Any]) -> None:
    length = found["options"]["length"]
    print(
        f"| one token at {length} | kernels a layer | bytes over keys and values |\n|---|--:|--:|"
    )
    for row in found["counts"]:
        print(f"| {row['method']} | {row['kernels']} | {row['moved']:.2f} |")
    if found["times"]:
        print("\n| a step | batch | tokens | time | CPU time | limit | kept | ms | tokens/s |")
        print("|---|--:|--:|--:|--:|--:|---|--:|--:|")
    for row in found["times"]:
        first, second = row["milliseconds"]
        fast, slow = row["tokens_per_second"]
        limit = "-" if row["limit"] is None else f"{row['limit']:g}"
        kept = "yes" if row["kept"] else "**no**"
        print(
            f"| {row['name']} | {row['batch']} | {row['length']} | {row['ratio']:.2f}"
            f" | {row['cpu']:.2f} | {limit} | {kept} | {first:.0f} and {second:.0f}"
            f" | {fast:.1f} and {slow:.1f} |"
        )
    print(f"\n{found['options']}")


if __name__ == "__main__":
    main()
