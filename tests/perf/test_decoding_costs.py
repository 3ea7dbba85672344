"""The paths that perf/decoding.py times, on the toy model: their kernels and bytes; its checks.

Counts are exact; times are not looked at.
"""

import argparse
import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

SIZES: dict[str, Any] = {"model": "toy_llama", "window": 32, "threads": 1}


@pytest.fixture
def script() -> Iterator[Any]:
    import decoding

    threads = torch.get_num_threads()
    yield decoding
    torch.set_num_threads(threads)


@torch.no_grad()
def counted(script: Any, method: str, length: int) -> tuple[int, int, int]:
    """The kernels of a token, the bytes that they move, and the bytes of the cache.

    Kernels are torch operations that compute or copy. Bytes are those of all their tensors except
    weights.
    """
    from launches import Operations

    options = argparse.Namespace(**{**script.OPTIONS, **SIZES})
    model = script.extended(options, method, length)
    states = script.random_states(model, 1, length)
    cache = script.filled(model.new_cache(length + options.new_tokens), states)
    tokens = script.last_tokens(1)
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


def test_a_token_reads_each_key_and_value_once_and_copies_none(script):
    for method in ("none", *script.TIMED):
        few, many = (counted(script, method, length) for length in (400, 1000))
        kernels, moved, held = (more - less for less, more in zip(few, many, strict=True))
        assert kernels == 0
        # What a longer text costs more, so that what every token costs drops out.
        assert moved / held == pytest.approx(0 if method in script.WINDOWED else 1, abs=1e-6)


def test_answers_are_compared_and_every_method_is_timed(script, tmp_path, capsys):
    sizes = {"length": 300, "stock-length": 200, "batch": 2, "stock-batch": 3, "new-tokens": 3}
    options = {**SIZES, **sizes, "repeats": 1, "out": tmp_path / "found.json"}
    arguments = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    script.measure("", script.rows, arguments, **script.OPTIONS)
    found = json.loads((tmp_path / "found.json").read_text())["rows"]
    names = ["generate() against none", *(f"{name} against none" for name in script.TIMED)]
    assert [row["a step"] for row in found] == names
    assert all(row["time"] > 0 for row in found)
    assert "| generate() against none | 3 | 200 |" in capsys.readouterr().out
