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

import statistics
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from measuring import Row, at_least, at_most, compare, measure
from operations import Operations
from transformers import AutoModelForCausalLM, DynamicCache

from lce_core.evaluation.decoding import _answers, _prefill, _Settings
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from lce_core.models import MODELS

Answers = list[list[int]]
States = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values (batch, kv_heads, length, head_dim) of each layer."""
TIMED: dict[str, float | None] = {
    "none": None,
    "yarn": None,
    "harpe": 1.3,
    "self_extend": 1.3,
    "rerope": None,
    "lm_infinite": 0.8,
    "streaming_llm": 0.8,
}
"""Methods, and the maximum of their time divided by the time without a method."""
PARAMETERS: dict[str, dict[str, Any]] = {"harpe": {"bases": "uniform_ascending"}}
WINDOWED = ("lm_infinite", "streaming_llm")
OPTIONS: dict[str, Any] = {
    "device": "auto",
    "dtype": "float32",
    "model": "smollm2_135m",
    "layers": 0,
    "window": 1024,
    "stock_length": 2048,
    "stock_batch": 8,
    "length": 8192,
    "batch": 4,
    "new_tokens": 8,
    "threads": 2,
    "repeats": 5,
    "only": (),
    "no_times": False,
}
"""`layers` is 0 for all, `window` that of methods with windows, `only` names methods to measure."""


@torch.no_grad()
def rows(options: Namespace) -> Iterator[Row]:
    methods = [one for one in TIMED if one == "none" or one in (options.only or TIMED)]
    for method in methods:
        yield {"method": method, **counts(options, method)}
    if not options.no_times:
        yield against_generate(options)
        yield from against_stock(options, methods[1:])


# Models and caches


def stock_model(options: Namespace, layers: int) -> Any:
    """Return the base model with random weights, without any method."""
    base: Any = MODELS.parse({"name": options.model}, "perf")
    config = base.config()
    config.num_hidden_layers = layers or config.num_hidden_layers
    config.eos_token_id = None  # all answers have the same number of tokens
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    return model.to(options.device, getattr(torch, options.dtype)).eval()


def extended(options: Namespace, method: str, length: int, layers: int | None = None) -> Any:
    """Return the model with the method applied, ready for `length` plus new tokens."""
    parameters = {"window": options.window} if method in WINDOWED else PARAMETERS.get(method, {})
    model = extend(
        stock_model(options, options.layers if layers is None else layers),
        MODELS.parse({"name": options.model}, "perf"),
        METHODS.parse({"name": method, **parameters}, "perf"),
        target=length + options.new_tokens,
    )
    model.begin_request(length + options.new_tokens)
    return model


def random_states(model: Any, batch: int, length: int) -> States:
    geometry, generator = model.geometry, torch.Generator(model.model.device).manual_seed(0)
    shape = (batch, geometry.num_kv_heads, length, geometry.head_dim)
    made = {"generator": generator, "dtype": model.model.dtype, "device": model.model.device}
    layers = range(model.model.config.num_hidden_layers)
    return [(torch.randn(shape, **made), torch.randn(shape, **made)) for _ in layers]


def filled(cache: DynamicCache, states: States) -> DynamicCache:
    """Append the keys and values of each layer to a cache; return the cache."""
    for layer, (keys, values) in enumerate(states):
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


def counts(options: Namespace, method: str) -> Row:
    """Return kernels and relative bytes per layer: the difference of a 2- and a 1-layer model."""
    one, two = (counted(options, method, layers) for layers in (1, 2))
    kernels, moved, held = (more - less for less, more in zip(one, two, strict=True))
    return {"kernels a layer": kernels, "bytes over keys and values": moved / held}


def counted(options: Namespace, method: str, layers: int) -> tuple[int, int, int]:
    """Return the kernels of a token, the bytes that they move, and the bytes of the cache."""
    model = extended(options, method, options.length, layers)
    states = random_states(model, 1, options.length)
    cache = filled(model.new_cache(options.length + options.new_tokens), states)
    tokens = last_tokens(model.model, 1)
    model.hidden_states(tokens, cache)  # rotates the cached keys once, which is not counted
    weights = {part.untyped_storage().data_ptr() for part in model.model.parameters()}
    moved: list[int] = []

    def count(_: str, tensors: list[torch.Tensor]) -> None:
        touched = {
            (one.data_ptr(), one.shape, one.stride()): one.nbytes
            for one in tensors
            if one.untyped_storage().data_ptr() not in weights
        }
        moved.append(sum(touched.values()))

    with Operations(count):
        model.hidden_states(tokens, cache)
    return len(moved), sum(moved), sum(part.nbytes for layer in states for part in layer)


# Times


def against_generate(options: Namespace) -> Row:
    """Compare decoding without a method with transformers' generate()."""
    batch, length, number = options.stock_batch, options.stock_length, options.new_tokens
    model = extended(options, "none", length)
    states = random_states(model, batch, length)
    ours, theirs = filled(model.new_cache(length + number), states), filled(DynamicCache(), states)
    here = partial(answers, model, ours, batch, number)
    there = partial(generated, stock_model(options, options.layers), theirs, batch, number)
    assert here() == there(), "answers of the stock model differ from generate()'s"
    row = compared("generate() against none", there, here, options, batch, length)
    return {**row, "limit": at_least(row["time"], 1.5)}


def against_stock(options: Namespace, methods: list[str]) -> Iterator[Row]:
    """Compare decoding with each method with decoding without a method."""
    batch, length, number = options.batch, options.length, options.new_tokens
    stock = extended(options, "none", length)
    states = random_states(stock, batch, length)
    plain = filled(stock.new_cache(length + number), states)
    for method in methods:
        model = extended(options, method, length)
        expected = answers(model, filled(DynamicCache(), states), batch, number)
        cache = filled(model.new_cache(length + number), states)
        here = partial(answers, model, cache, batch, number)
        assert here() == expected, f"answers of {method} depend on the type of its cache"
        without = partial(answers, stock, plain, batch, number)
        row = compared(f"{method} against none", here, without, options, batch, length)
        yield {**row, "limit": at_most(row["time"], TIMED[method])}


def compared(
    name: str,
    first: Callable[[], Answers],
    second: Callable[[], Answers],
    options: Namespace,
    batch: int,
    length: int,
) -> Row:
    """Return the median of first time / second time, and milliseconds per token of both."""
    found = compare(first, second, options.repeats)
    milliseconds = [
        1000 * statistics.median(one.wall for one in side) / options.new_tokens
        for side in (found.first, found.second)
    ]
    return {
        "a step": name,
        "batch": batch,
        "tokens": length,
        "time": found.wall,
        "CPU time": found.cpu,
        "ms": " and ".join(f"{step:.0f}" for step in milliseconds),
        "tokens/s": " and ".join(f"{1000 * batch / step:.1f}" for step in milliseconds),
    }


if __name__ == "__main__":
    measure(__doc__, rows, **OPTIONS)
