"""Losses computed once and shared, against the same cell with an empty cache."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lce_core.benchmarks import CellResult
from lce_core.contracts.benchmark_cases import streams
from lce_core.errors import UnavailableError
from lce_core.evaluation.likelihood import window_scores
from lce_core.evaluation.windows import LossCache, TokenScores
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from tests.support.cells import TOY, benchmark, request, values


@pytest.mark.parametrize(
    "method", ["none", "yarn", "ntk_32k", "self_extend", "lm_infinite", "rerope"]
)
def test_the_first_losses_of_a_longer_window_are_those_of_a_shorter_one(method):
    model = request(benchmark("perplexity"), 300, method).model
    windows = np.random.default_rng(5).integers(256, size=(3, 300))
    longest = window_scores(model, windows, batch_tokens=900)
    for length in (2, 130, 257):
        assert model.begins_alike(length, 300)
        alone = window_scores(
            model, windows[:, :length], following=windows[:, length], batch_tokens=900
        )
        for index in range(3):
            nll, hits = longest.nll[index, : length - 1], longest.hits[index, :length]
            np.testing.assert_allclose(nll, alone.nll[index], atol=1e-5, rtol=0)
            np.testing.assert_array_equal(hits, alone.hits[index])


@pytest.fixture
def passed(monkeypatch) -> list[int]:
    sizes: list[int] = []

    def counting(model: Any, windows: Any, **options: Any) -> Any:
        sizes.append(windows.size)
        return window_scores(model, windows, **options)

    monkeypatch.setattr("lce_core.evaluation.likelihood.window_scores", counting)
    return sizes


def test_perplexity_and_nll_by_position_run_the_model_once(passed):
    perplexity = benchmark("perplexity", profile="fast", last=32)
    cell = request(perplexity, 128, held_out=streams(3000))
    by_position = benchmark("nll_by_position")
    alone = by_position.evaluate(replace(cell, losses=LossCache()))
    passed.clear()
    overall = perplexity.evaluate(cell)
    assert passed == [2944]
    shared = by_position.evaluate(cell)
    assert passed == [2944]
    assert shared == alone
    assert math.log(values(overall)["perplexity"]) == pytest.approx(values(shared)["nll"])


@pytest.mark.parametrize(("method", "passes"), [("yarn", 1), ("ntk_frozen", 4)])
def test_shorter_lengths_are_read_off_the_longest_where_the_method_allows(passed, method, passes):
    asked = benchmark("perplexity_documents", truncate=True, min_document_tokens=500)
    cell = request(asked, 500, method, held_out=streams(4000))
    cells = [replace(cell, eval_length=length) for length in (500, 400, 200, 150)]
    alone = [asked.evaluate(replace(one, losses=LossCache())) for one in cells]
    passed.clear()
    shared = [asked.evaluate(one) for one in cells]
    assert len(passed) == passes
    for one, other in zip(shared, alone, strict=True):
        assert values(one) == pytest.approx(values(other), rel=1e-5)


def test_a_length_beyond_a_methods_reach_is_unavailable_whatever_is_cached():
    asked = benchmark("perplexity_documents", profile="tiny")
    cell = request(asked, 250, held_out=streams(3000))
    asked.evaluate(cell)
    short = METHODS.parse({"name": "self_extend", "window": 64, "group": 2}, "test")
    limited = extend(TOY.initialise(2).eval(), TOY, short, target=512)
    with pytest.raises(UnavailableError, match="supports up to 192 tokens"):
        asked.evaluate(replace(cell, model=limited))


def test_a_full_cache_forgets_its_oldest_pass():
    cache, text = LossCache(limit_bytes=1000), ("digest", None)
    never = lambda shorter, longer: False  # noqa: E731

    def scores(windows: int, length: int) -> TokenScores:
        return TokenScores(
            np.ones((windows, length - 1), np.float32), np.ones((windows, length), np.bool_)
        )

    for length in (51, 101):
        cache.keep(text, np.array([0]), length, scores(1, length))
    assert cache.find(text, 0, 51, never) is not None
    cache.keep(text, np.array([0, 7]), 81, scores(2, 81))
    assert cache.find(text, 0, 51, never) is None
    assert cache.find(text, 7, 81, never) is not None
    assert cache.find(("other", None), 7, 81, never) is None


def _stored(result: CellResult) -> list[NDArray[np.float64]]:
    ends = np.cumsum(result.arrays["losses"])[:-1]
    return np.split(result.arrays["nll"].astype(np.float64), ends)


def test_every_perplexity_of_a_cell_follows_from_its_stored_losses():
    text = streams(2000)
    asked = benchmark("perplexity", profile="faithful", stride=40, last=20)
    result = asked.evaluate(request(asked, 96, held_out=text))
    rows = np.array(_stored(result))
    assert result.arrays["start"].tolist() == list(range(0, 1904, 40))[:-1]
    found = values(result)
    del found["next_token_accuracy"]  # hits are not stored
    assert found == pytest.approx(
        {
            "perplexity": 2.71828 ** rows.mean(axis=1).mean(),
            "perplexity_last": 2.71828 ** rows[:, -20:].mean(),
        },
        rel=1e-4,
    )
    within = benchmark("perplexity_documents", stride=40)
    result = within.evaluate(request(within, 96, held_out=text))
    assert result.arrays["losses"].tolist() == [s.num_prompt_tokens - 1 for s in result.samples]
    by_position = benchmark("nll_by_position", bin_width=1)
    result = by_position.evaluate(request(by_position, 96, held_out=text))
    means = np.mean(_stored(result), axis=0)
    assert dict(result.token_nll) == pytest.approx(dict(enumerate(means, start=1)), rel=1e-3)


def test_losses_are_kept_where_they_are_few_or_asked_for(monkeypatch):
    def kept(**parameters: Any) -> bool:
        asked = benchmark("perplexity", profile="tiny", **parameters)
        return bool(asked.evaluate(request(asked, 128, held_out=streams(600))).arrays)

    assert kept()
    assert not kept(store_nll=False)
    monkeypatch.setattr("lce_core.benchmarks._text.benchmark.SMALL_BYTES", 1000)
    assert not kept()
    assert kept(store_nll=True)
