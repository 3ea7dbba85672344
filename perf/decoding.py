"""Measure the generation of one token: time against transformers' generate(), and of each method.

Caches are filled with random keys and values, because processing a long prompt would take too long;
weights are random, because the cost does not depend on their values. The script first checks the
answers: of the model without a method against generate(), and of every method against the same
method with transformers' DynamicCache.
"""

from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from measuring import Row, at_least, at_most, compare, measure
from transformers import DynamicCache

from lce_core.evaluation.decoding import greedy, next_states
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from lce_core.models import MODELS

Answers = list[list[int]]
States = list[tuple[torch.Tensor, torch.Tensor]]
"""Keys and values (batch, kv_heads, length, head_dim) of each layer."""
TIMED: dict[str, float | None] = {
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
    "model": "smollm2_135m",
    "window": 1024,
    "stock_length": 2048,
    "stock_batch": 8,
    "length": 8192,
    "batch": 4,
    "new_tokens": 8,
    "threads": 2,
    "repeats": 5,
}
"""`window` is that of methods with windows."""


@torch.no_grad()
def rows(options: Namespace) -> Iterator[Row]:
    yield against_generate(options)
    yield from against_stock(options)


# Models and caches


def stock_model(options: Namespace) -> Any:
    """Return the base model with random weights, without any method."""
    model = MODELS.parse({"name": options.model}, "perf").initialise(0).eval()
    model.generation_config.eos_token_id = None  # all answers have the same number of tokens
    return model


def extended(options: Namespace, method: str, length: int) -> Any:
    """Return the model with the method applied, ready for `length` plus new tokens."""
    parameters = {"window": options.window} if method in WINDOWED else PARAMETERS.get(method, {})
    model = extend(
        stock_model(options),
        MODELS.parse({"name": options.model}, "perf"),
        METHODS.parse({"name": method, **parameters}, "perf"),
        target=length + options.new_tokens,
    )
    model.begin_request(length + options.new_tokens)
    return model


def random_states(model: Any, batch: int, length: int) -> States:
    geometry, generator = model.geometry, torch.Generator().manual_seed(0)
    shape = (2, batch, geometry.num_kv_heads, length, geometry.head_dim)
    layers = range(model.model.config.num_hidden_layers)
    return [tuple(torch.randn(shape, generator=generator)) for _ in layers]


def filled(cache: DynamicCache, states: States) -> DynamicCache:
    for layer, (keys, values) in enumerate(states):
        cache.update(keys, values, layer)
    return cache


def last_tokens(batch: int) -> torch.Tensor:
    """Return a different last prompt token (batch, 1) for each text."""
    return torch.arange(batch)[:, None] + 5


def answers(model: ExtendedModel, cache: DynamicCache, batch: int, number: int) -> Answers:
    """Decode `number` tokens of each text from the cache, then restore the cache."""
    length = cache.get_seq_length()
    states = model.hidden_states(last_tokens(batch), cache)[:, -1]
    follow = partial(next_states, model, cache)
    found = greedy(model, [lambda _: False] * batch, number, states, follow)
    cache.crop(length - cache.get_seq_length())
    return [answer.tolist() for answer in found]


def generated(stock: Any, cache: DynamicCache, batch: int, number: int) -> Answers:
    """Decode with transformers' generate(), then restore the cache."""
    length = cache.get_seq_length()
    last = last_tokens(batch)
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


# Times


def against_generate(options: Namespace) -> Row:
    batch, length, number = options.stock_batch, options.stock_length, options.new_tokens
    model = extended(options, "none", length)
    states = random_states(model, batch, length)
    ours, theirs = filled(model.new_cache(length + number), states), filled(DynamicCache(), states)
    here = partial(answers, model, ours, batch, number)
    there = partial(generated, stock_model(options), theirs, batch, number)
    assert here() == there(), "answers of the stock model differ from generate()'s"
    time = compare(there, here, options.repeats).wall
    row = {"a step": "generate() against none", "batch": batch, "tokens": length}
    return {**row, "time": time, "limit": at_least(time, 1.5)}


def against_stock(options: Namespace) -> Iterator[Row]:
    batch, length, number = options.batch, options.length, options.new_tokens
    stock = extended(options, "none", length)
    states = random_states(stock, batch, length)
    plain = filled(stock.new_cache(length + number), states)
    without = partial(answers, stock, plain, batch, number)
    for method, limit in TIMED.items():
        model = extended(options, method, length)
        expected = answers(model, filled(DynamicCache(), states), batch, number)
        cache = filled(model.new_cache(length + number), states)
        here = partial(answers, model, cache, batch, number)
        assert here() == expected, f"answers of {method} depend on the type of its cache"
        time = compare(here, without, options.repeats).wall
        row = {"a step": f"{method} against none", "batch": batch, "tokens": length}
        yield {**row, "time": time, "limit": at_most(time, limit)}


if __name__ == "__main__":
    measure(__doc__, rows, **OPTIONS)
