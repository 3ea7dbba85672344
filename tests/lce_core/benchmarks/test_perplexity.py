"""Losses of text: every definition against a loop over a stock model's full logits."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.nn import functional

from lce_core.benchmarks._text.windows import num_windows
from lce_core.contracts.benchmark_cases import streams as _streams
from lce_core.errors import UnavailableError
from lce_core.evaluation.windows import LossCache
from tests.support.cells import TOY
from tests.support.cells import benchmark as _benchmark
from tests.support.cells import request as _request
from tests.support.cells import values as _values


def _losses(model: torch.nn.Module, tokens: NDArray[np.uint32]) -> NDArray[np.float64]:
    ids = torch.from_numpy(tokens.astype(np.int64))[None]
    with torch.no_grad():
        logits = model(ids).logits[0, :-1].double()
    return functional.cross_entropy(logits, ids[0, 1:], reduction="none").numpy()


def test_faithful_perplexity_is_the_loop_of_lcegs_script():
    stock, length, stride = TOY.initialise(2).eval(), 96, 40
    stream = _streams(1000).tokens["code"]
    starts = list(range(0, len(stream) - length, stride))[:-1]
    means = [_losses(stock, stream[start : start + length]).mean() for start in starts]
    benchmark = _benchmark("perplexity", profile="faithful", stride=stride, last=20)
    result = benchmark.evaluate(_request(benchmark, length, held_out=_streams(1000)))
    assert _values(result)["perplexity"] == pytest.approx(2.71828 ** np.mean(means), rel=1e-4)
    assert [sample.score for sample in result.samples] == pytest.approx(means, abs=1e-4)
    assert len(starts) == math.ceil((1000 - length) / stride) - 1


@pytest.mark.parametrize("profile", ["faithful", "clean"])
def test_next_token_accuracy_is_that_of_full_logits(profile):
    stock, length, stride = TOY.initialise(2).eval(), 96, 40
    ids = torch.from_numpy(_streams(1000).tokens["code"].astype(np.int64))
    faithful = profile == "faithful"
    # LCEG takes as many predictions as a window has tokens, the losses one fewer.
    predictions = length if faithful else length - 1
    starts = list(range(0, len(ids) - length + (not faithful), stride))[: -1 if faithful else None]
    shares = []
    for start in starts:
        with torch.no_grad():
            likeliest = stock(ids[None, start : start + length]).logits[0].argmax(-1)
        texts = ids[start + 1 : start + 1 + predictions]
        shares.append((likeliest[:predictions] == texts).double().mean().item())
    benchmark = _benchmark("perplexity", profile=profile, stride=stride, last=20)
    result = benchmark.evaluate(_request(benchmark, length, held_out=_streams(1000)))
    assert _values(result)["next_token_accuracy"] == pytest.approx(np.mean(shares), rel=1e-9)
    assert len(set(shares)) > 1


def test_perplexity_of_the_last_tokens_scores_every_token_once_when_stride_equals_last():
    stock, length, stride = TOY.initialise(2).eval(), 96, 32
    stream = _streams(1000).tokens["code"]
    scored: dict[int, float] = {}
    for start in range(0, len(stream) - length + 1, stride):
        losses = _losses(stock, stream[start : start + length])
        for offset in range(1 if start == 0 else length - stride, length):
            assert start + offset not in scored
            scored[start + offset] = losses[offset - 1]
    assert sorted(scored) == list(range(1, max(scored) + 1))
    benchmark = _benchmark("perplexity", profile="clean", stride=stride, last=stride)
    result = benchmark.evaluate(_request(benchmark, length, held_out=_streams(1000)))
    expected = math.exp(np.mean(list(scored.values())))
    assert _values(result)["perplexity_last"] == pytest.approx(expected, rel=1e-4)


def test_begun_windows_have_the_losses_of_text_after_the_begin_token():
    stock, length, stride = TOY.initialise(2).eval(), 96, 40
    stream, tokenizer = _streams(1000).tokens["code"], TOY.tokenizer(None)
    benchmark = _benchmark("perplexity", profile="clean", stride=stride, last=20, begin=True)
    asked = _request(benchmark, length, held_out=_streams(1000), tokenizer=tokenizer)
    with pytest.raises(UnavailableError, match="without a beginning-of-text token"):
        benchmark.evaluate(asked)
    tokenizer.bos_token = "<query-7>"
    means = [
        _losses(stock, np.insert(stream[start : start + length - 1], 0, SEPARATOR)).mean()
        for start in range(0, len(stream) - length + 1, stride)
    ]
    found = benchmark.evaluate(asked)
    assert [sample.score for sample in found.samples] == pytest.approx(means, abs=1e-4)
    plain = _benchmark("perplexity", profile="clean", stride=stride, last=20)
    assert _values(plain.evaluate(asked)) != _values(found)


@pytest.mark.parametrize(("profile", "chunk"), [("clean", 300), ("faithful", 128)])
def test_begun_windows_and_chunks_of_nll_by_position_follow_the_begin_token(profile, chunk):
    stock, length = TOY.initialise(2).eval(), 300
    tokenizer = TOY.tokenizer(None)
    tokenizer.bos_token = "<query-7>"
    stream = _streams(1000).tokens["code"]
    means = []
    for start in range(0, 1000 - length + 1, length):
        window = stream[start : start + length - 1]
        pieces = [window[first : first + chunk - 1] for first in range(0, length - 1, chunk)]
        losses = [_losses(stock, np.insert(piece, 0, SEPARATOR)) for piece in pieces]
        means.append(np.concatenate(losses).mean())
    benchmark = _benchmark("nll_by_position", profile=profile, begin=True)
    asked = _request(benchmark, length, held_out=_streams(1000), tokenizer=tokenizer)
    found = benchmark.evaluate(asked)
    assert [sample.score for sample in found.samples] == pytest.approx(means, abs=1e-4)


@pytest.mark.parametrize("name", ["perplexity", "nll_by_position"])
def test_windows_without_the_begin_token_that_a_model_needs_are_counted(name, monkeypatch):
    tokenizer = TOY.tokenizer(None)
    tokenizer.bos_token = "<query-7>"

    def checks(**parameters: Any) -> Any:
        benchmark = _benchmark(name, profile="fast", **parameters)
        asked = _request(benchmark, 300, held_out=_streams(1000), tokenizer=tokenizer)
        return benchmark.evaluate(asked).checks

    assert checks() == {}
    needy = replace(TOY.architecture, needs_begin=True)
    monkeypatch.setattr(type(TOY), "architecture", needy)
    assert checks() == {"num_without_begin": 3}
    assert checks(begin=True) == {}


def test_nll_by_position_is_the_mean_of_full_logit_losses_in_each_bin():
    stock, length, width = TOY.initialise(2).eval(), 80, 16
    stream = _streams(500).tokens["code"]
    rows = np.array([_losses(stock, stream[s : s + length]) for s in range(0, 421, length)])
    by_position = {position: rows[:, position - 1].mean() for position in range(1, length)}
    benchmark = _benchmark("nll_by_position", bin_width=width)
    result = benchmark.evaluate(_request(benchmark, length, held_out=_streams(500)))
    for first, value in result.token_nll:
        places = [p for p in range(first, first + width) if p in by_position]
        assert value == pytest.approx(np.mean([by_position[p] for p in places]), abs=1e-4)
    assert [first for first, _ in result.token_nll] == [0, 16, 32, 48, 64]
    assert _values(result)["nll"] == pytest.approx(rows.mean(), abs=1e-4)
    # Column p - 1 holds position p; the last quarter of 80 positions starts at 60.
    assert _values(result)["nll_last_quarter"] == pytest.approx(rows[:, 59:].mean(), abs=1e-4)


def test_faithful_nll_by_position_restarts_an_unextended_model_every_trained_context():
    stock, stream = TOY.initialise(2).eval(), _streams(300).tokens["code"]
    benchmark = _benchmark("nll_by_position", profile="faithful", bin_width=1)
    result = benchmark.evaluate(_request(benchmark, 257, held_out=_streams(300)))
    expected = dict(enumerate(_losses(stock, stream[:128]), start=1))
    expected |= dict(enumerate(_losses(stock, stream[128:256]), start=129))
    assert dict(result.token_nll) == pytest.approx(expected, abs=1e-4)


def test_a_domain_that_is_absent_or_shorter_than_a_window_is_unavailable():
    for domain, message in (("poems", "'poems'.*code, prose"), ("code", "got 100 tokens.* 128 ")):
        benchmark = _benchmark("perplexity", domains=[domain], profile="tiny")
        with pytest.raises(UnavailableError, match=message):
            benchmark.evaluate(_request(benchmark, 128, held_out=_streams(100)))


SEPARATOR = 256 + 8 * 16 + 7


@pytest.fixture(scope="module", params=["bos_token", "eos_token"])
def bos_tokenizer(request) -> Any:
    """The toy's tokenizer, one of whose tokens begins texts, or ends them where none begins."""
    tokenizer = TOY.tokenizer(None)
    setattr(tokenizer, request.param, "<query-7>")
    return tokenizer


def _document_losses(
    stock: torch.nn.Module, document: NDArray[np.uint32], length: int, stride: int
) -> list[NDArray[np.float64]]:
    """NLL of the new tokens of each window of a document, without a special token before it."""
    windows, done = [], 0
    for start in range(0, len(document), stride):
        end = min(start + length, len(document))
        if end - start > 1:
            windows.append(_losses(stock, document[start:end])[-(end - done) :])
        done = end
        if end == len(document):
            break
    return windows


@pytest.mark.parametrize(("length", "stride"), [(96, 96), (64, 40), (700, 200)])
def test_definitions_within_documents_are_those_of_a_loop(length, stride):
    stock, text = TOY.initialise(2).eval(), _streams(1700)
    by_document = [
        _document_losses(stock, text.tokens["code"][start:end], length, stride)
        for start, end in ((0, 1500), (1500, 1700))
    ]
    windows = [window for document in by_document for window in document]
    means = [np.concatenate(document).mean() for document in by_document]
    # The second document has 200 tokens: a window of 700 is not filled by it.
    first = [document[0].mean() for document in by_document][: 1 if length == 700 else 2]
    benchmark = _benchmark("perplexity_documents", stride=stride)
    result = benchmark.evaluate(_request(benchmark, length, held_out=text))
    assert _values(result) == pytest.approx(
        {
            "perplexity": math.exp(np.concatenate(windows).mean()),
            "perplexity_window_mean": math.exp(np.mean([window.mean() for window in windows])),
            "perplexity_document_mean": np.mean(np.exp(means)),
            "perplexity_truncated": math.exp(np.mean(first)),
        },
        rel=1e-4,
    )
    assert [sample.score for sample in result.samples] == pytest.approx(
        [window.mean() for window in windows], abs=1e-4
    )
    assert {sample.cluster for sample in result.samples} == {"code-0", "code-1"}


def test_a_token_before_each_window_lets_every_token_of_a_document_be_scored(bos_tokenizer):
    stock, text, length, stride = TOY.initialise(2).eval(), _streams(300), 64, 20
    document, expected, done = text.tokens["code"], [], 0
    for start in range(0, 300, stride):
        end = min(start + length - 1, 300)
        window = np.concatenate([[SEPARATOR], document[start:end]])
        expected.append(_losses(stock, window.astype(np.uint32))[-(end - done) :])
        done = end
        if end == 300:
            break
    benchmark = _benchmark("perplexity_documents", stride=stride)
    request = _request(benchmark, length, held_out=text, tokenizer=bos_tokenizer)
    result = benchmark.evaluate(request)
    assert sum(len(window) for window in expected) == 300
    found = _values(result)
    assert found["perplexity"] == pytest.approx(math.exp(np.concatenate(expected).mean()), rel=1e-4)
    assert found["perplexity_truncated"] == pytest.approx(math.exp(expected[0].mean()), rel=1e-4)


def test_truncated_documents_are_scored_in_one_window_each():
    text = _streams(4000)
    sliding = _benchmark("perplexity_documents", stride=40)
    truncated = _benchmark("perplexity_documents", truncate=True, min_document_tokens=1000)
    request = _request(sliding, 200, held_out=text)
    result = truncated.evaluate(replace(request, losses=LossCache()))
    # Documents of 1500, 1500 and 1000 tokens.
    assert [sample.num_prompt_tokens for sample in result.samples] == [200] * 3
    expected = _values(sliding.evaluate(request))["perplexity_truncated"]
    assert _values(result)["perplexity_truncated"] == pytest.approx(expected, rel=1e-5)
    assert _values(result)["perplexity"] == pytest.approx(expected, rel=1e-5)
    fewer = _benchmark("perplexity_documents", truncate=True, min_document_tokens=1200)
    assert len(fewer.evaluate(request).samples) == 2


@given(tokens=st.integers(1, 400), length=st.integers(2, 90), stride=st.integers(1, 120))
def test_lcegs_window_count_is_that_of_its_loop(tokens, length, stride):
    loop = len(range(0, tokens - length, stride)[:-1])
    assert num_windows(tokens, length, stride, drop_last=True) == loop
    if tokens > length + stride:
        assert loop == math.ceil((tokens - length) / stride) - 1


def test_truncated_documents_shorter_than_the_length_are_unavailable():
    benchmark = _benchmark("perplexity_documents", truncate=True, min_document_tokens=1000)
    assert "a document of 1000 tokens, which min_document_tokens accepts" in str(
        benchmark.unavailable(TOY, "code", 1001)
    )
    assert benchmark.unavailable(TOY, "code", 1000) is None
    with pytest.raises(UnavailableError, match="500 tokens in the longest held-out document"):
        benchmark.evaluate(_request(benchmark, 200, held_out=_streams(500)))
