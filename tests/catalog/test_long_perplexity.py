"""LongPPL from stored losses, against the loop of its authors over a real model.

The oracle repeats PKU-ML/LongPPL@1decd2a (`find_key_token`, `compute_longppl`): one pass over a
whole text, and one per short window. Models are random; thresholds are such that some tokens reach.
"""

import re
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pytest
import torch
import yaml

from catalog.build import build_catalog
from catalog.long_perplexity import TokenLosses, key_tokens, token_losses
from lce_core.benchmarks import BENCHMARKS
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from tests.support.architectures import save
from tests.support.cells import TOY, request
from tests.support.repository import ROOT
from tests.support.small_study import Small, written_text

ALPHA, BETA = 0.005, -8.0
LONG, SHORT, STRIDE = 128, 48, 16
STOCK = TOY.initialise(3).eval()


def losses(length: int, stride: int, method: str = "none") -> TokenLosses:
    """Losses of the toy model as the benchmark stores them."""
    chosen = BENCHMARKS.parse(
        {"name": "perplexity", "profile": "fast", "stride": stride, "last": 8, "max_tokens": 1024},
        "t",
    )
    model = extend(TOY.initialise(3).eval(), TOY, METHODS.parse({"name": method}, "t"), target=512)
    cell = replace(request(chosen, length), model=model, task="code")
    found = chosen.evaluate(cell).arrays
    rows = found["nll"].astype(float).reshape(len(found["start"]), -1)
    return token_losses(found["start"], rows)


@torch.no_grad()
def of_stock(ids: np.ndarray) -> np.ndarray:
    """Losses of tokens 1..n-1 of one text, by a stock model."""
    tokens = torch.from_numpy(ids.astype(np.int64)[None])
    logits = STOCK(tokens).logits[0, :-1]
    return torch.nn.functional.cross_entropy(logits, tokens[0, 1:], reduction="none").numpy()


def authors_key_tokens(ids: np.ndarray, trunc_len: int, sliding_window: int) -> list[int]:
    full, found = of_stock(ids), []
    for start in range(0, len(ids) - trunc_len, sliding_window):
        size = min(sliding_window, len(ids) - start - trunc_len)
        short = of_stock(ids[start : start + trunc_len + size])[trunc_len - 1 :]
        long = full[start + trunc_len - 1 : start + trunc_len + size - 1]
        key = (short - long > ALPHA) & (long < -BETA)
        found += [start + trunc_len + place for place in np.flatnonzero(key)]
    return found


def test_key_tokens_are_those_of_the_authors_loop():
    chosen: Any = BENCHMARKS.parse(
        {"name": "perplexity", "profile": "fast", "max_tokens": 1024}, "t"
    )
    stream, _ = chosen.stream(replace(request(chosen, LONG), task="code"))
    long, short = losses(LONG, LONG), losses(SHORT, STRIDE)
    found = key_tokens(long, short, alpha=ALPHA, beta=BETA)
    expected, key_losses = [], []
    for start in range(0, len(stream) - LONG + 1, LONG):
        ids = stream[start : start + LONG]
        mine = authors_key_tokens(ids, SHORT - STRIDE, STRIDE)
        expected += [start + place for place in mine]
        key_losses += [of_stock(ids)[place - 1] for place in mine]
    # A stored loss has 11 bits, so a token may lie on the other side of a threshold.
    assert len(expected) > 100
    assert len({*expected} ^ {*found.tolist()}) <= 0.02 * len(expected)
    assert np.exp(long.nll[found].mean()) == pytest.approx(np.exp(np.mean(key_losses)), rel=2e-2)
    assert np.exp(long.nll[expected].mean()) == pytest.approx(np.exp(np.mean(key_losses)), rel=1e-3)


def test_key_tokens_of_a_text_are_those_computed_by_hand():
    def of(nll: list[float], context: list[int]) -> TokenLosses:
        return TokenLosses(np.array(nll), np.array(context), np.zeros(len(nll), dtype=np.int64))

    nan = np.nan
    long = of([nan, 1.0, 1.0, 1.0, 2.5, 1.9, 1.0], [-1, 1, 2, 3, 4, 5, 6])
    short = of([nan, nan, 3.5, 3.0, 5.0, 4.0, 9.0, 9.0], [-1, -1, 2, 2, 2, 2, 7, 2])
    # Gains: 2.5; 2.0, not more than 2; 2.5, but unlikely; 2.1; with more short than long context.
    assert key_tokens(long, short).tolist() == [2, 5]


def test_every_token_counts_in_the_window_where_it_is_among_the_last():
    nll = np.arange(9.0).reshape(3, 3)  # windows of 4 tokens with starts 0, 2 and 4
    found = token_losses(np.array([0, 2, 4]), nll)
    np.testing.assert_array_equal(found.nll, [np.nan, np.nan, 1, 2, 4, 5, 7, 8])
    assert found.context.tolist() == [-1, -1, 2, 3, 2, 3, 2, 3]
    assert found.window.tolist() == [-1, -1, 0, 0, 1, 1, 2, 2]


@pytest.mark.slow
def test_the_view_has_each_method_at_each_length(tmp_path, monkeypatch):
    monkeypatch.setattr(key_tokens, "__kwdefaults__", {"alpha": 0.0, "beta": -20.0})
    model = save("llama", tmp_path / "model", max_position_embeddings=512)
    (tmp_path / "text").mkdir()
    text = written_text(tmp_path / "text")
    page = (ROOT / "docs" / "catalog.md").read_text(encoding="utf-8")
    (documented,) = re.findall(r"### LongPPL.*?```yml\n(.*?)```", page, flags=re.DOTALL)
    # The documented entries, for a sixteenth of the context.
    asked = [
        entry | {"lengths": [length // 16 for length in entry["lengths"]], "last": 16}
        for entry in yaml.safe_load(documented)["benchmarks"]
    ]
    asked[1]["stride"] //= 16
    methods = ["none", {"name": "self_extend", "window": 256, "group": 16}]
    small = Small(model, {"text": text}, tmp_path / "home", benchmarks=asked, methods=methods)
    small.run()
    small.store.studies.save_plan("shared", small.plan.to_json(), "mine.yaml")
    with duckdb.connect(build_catalog(small.store), read_only=True) as connection:
        rows = connection.execute(
            "SELECT method, eval_length, evaluator_tokens, short_tokens, num_key_tokens, value"
            " FROM long_perplexity"
        ).fetchall()
    assert [row[:4] for row in rows] == [
        ("none", 512, 512, 192), ("self_extend", 512, 512, 192),
        ("none", 1024, 512, 192), ("self_extend", 1024, 512, 192),
    ]  # fmt: skip
    # The evaluator's windows of 512 tokens lie within those of 1,024, so the key tokens are equal.
    (number,) = {row[4] for row in rows}
    assert number > 50
    # Within its window, self_extend is the unmodified model only up to 256 tokens.
    assert len({row[5] for row in rows}) == 4
