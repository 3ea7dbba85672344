"""Multi-key retrieval: what a context holds; margins and losses against a whole pass per question
without a cache."""

from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pytest
import torch

from lce_core.benchmarks import CellRequest, Prompt
from lce_core.benchmarks.multi_key import MultiKey
from lce_core.contracts.benchmark_cases import TOY, Streams, held_out, words_tokenizer
from lce_core.errors import UnavailableError
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from tests.support.cells import benchmark as benchmark_of
from tests.support.cells import request as cell_of


def request(*, words: bool = False, length: int = 300, method: str = "none") -> CellRequest:
    model = extend(TOY.initialise(2).eval().double(), TOY, METHODS.load(method)(), target=512)
    tokenizer = words_tokenizer() if words else TOY.tokenizer(None)
    text: Any = held_out(in_words=words)
    return cell_of(multi_key(), length, model=model, tokenizer=tokenizer, held_out=text)


def multi_key(**parameters: Any) -> MultiKey:
    found = benchmark_of("multi_key", **parameters)
    assert isinstance(found, MultiKey)
    return found


def contexts(benchmark: MultiKey, cell: CellRequest) -> list[list[Prompt]]:
    prompts = benchmark.prompts(cell)
    return [list(group) for _, group in groupby(prompts, key=lambda prompt: prompt.context)]


def test_a_context_holds_every_key_once_at_its_depth_and_no_absent_key():
    benchmark, cell = multi_key(num_contexts=2, num_keys=3), request(words=True, length=600)
    for group in contexts(benchmark, cell):
        text = words_tokenizer().decode(group[0].ids[: group[0].context_tokens])
        places = [text.index(f" is {prompt.reference}.") / len(text) for prompt in group]
        assert places == sorted(places)
        for index, (prompt, place) in enumerate(zip(group, places, strict=True)):
            assert text.count(prompt.reference) == 1
            assert not any(key in text for key in prompt.labels[1:])
            assert index / 3 <= prompt.depth / 100 <= (index + 1) / 3
            # Sentences shift the text behind them.
            assert abs(place - prompt.depth / 100) < 0.2
            question = words_tokenizer().decode(prompt.ids[prompt.context_tokens :])
            name = question.rsplit("The pass key of ", 1)[1].removesuffix(" is")
            assert f"The pass key of {name} is {prompt.reference}." in text
            assert len(prompt.ids) + 8 <= cell.eval_length


def test_contexts_are_of_different_documents_and_then_of_later_parts_of_them():
    text = held_out(in_words=False).tokens["code"]
    cell = replace(request(length=300), held_out=Streams({"code": text[:3000]}))
    groups = contexts(multi_key(profile="tiny", num_contexts=10), cell)
    # Two documents of 1,500 tokens hold five texts of 300 each.
    starts = []
    for group in groups:
        begin = [token for token in group[0].ids.tolist() if token < TOY.keys.first_key][:32]
        windows = np.lib.stride_tricks.sliding_window_view(text, len(begin))
        starts.append(int(np.flatnonzero((windows == begin).all(axis=1))[0]) % 1500 // 300)
    assert starts == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert len({group[0].cluster for group in groups}) == 2
    with pytest.raises(UnavailableError, match="10 texts of 300 tokens in the documents"):
        multi_key(profile="tiny", num_contexts=11).prompts(cell)


@torch.no_grad()
@pytest.mark.parametrize("method", ["none", "dynamic_yarn", "self_extend"])
def test_margins_and_losses_are_those_of_whole_passes(method):
    benchmark, cell = multi_key(profile="tiny", num_contexts=2), request(method=method)
    result = benchmark.evaluate(cell)
    cell.model.begin_request(cell.eval_length)
    head, tokenizer = cell.model.model.get_output_embeddings(), cell.tokenizer

    def log_probabilities(ids: np.ndarray) -> torch.Tensor:
        return head(cell.model.hidden_states(torch.from_numpy(ids[None]))[0]).log_softmax(-1)

    samples, means = iter(result.samples), []
    for group in contexts(benchmark, cell):
        for prompt in group:
            after, sample = log_probabilities(prompt.ids)[-1], next(samples)
            right, *wrong = (
                float(after[tokenizer.convert_tokens_to_ids(key)]) for key in prompt.labels
            )
            assert sample.margin == pytest.approx(right - sum(wrong) / len(wrong), abs=1e-5)
            answer = tokenizer.convert_ids_to_tokens(int(after.argmax()))
            assert (sample.prediction, sample.score) == (answer, answer == prompt.reference)
            assert sample.cluster == prompt.cluster
        context = group[0].ids[: group[0].context_tokens]
        nll = -log_probabilities(context)[:-1].gather(-1, torch.from_numpy(context[1:, None]))
        keys = TOY.keys.first_key
        # Losses of the text: without the keys, and without the token after each.
        own = [i for i in range(1, len(context)) if max(context[i], context[i - 1]) < keys]
        means.append(float(nll[np.array(own) - 1].mean()))
    scores = {score.metric: score.value for score in result.scores}
    assert scores["nll"] == pytest.approx(np.mean(means), abs=1e-5)
    margins = [sample.margin for sample in result.samples]
    assert scores["margin"] == pytest.approx(np.mean(margins), abs=1e-9)
    assert len(result.samples) == 12


def test_nll_beyond_averages_the_losses_from_a_position_on_and_changes_no_other_number():
    benchmark, cell = multi_key(profile="tiny", num_contexts=3, nll_beyond=200), request()
    result = benchmark.evaluate(cell)
    losses = result.arrays["nll"].astype(np.float64)
    scores = {score.metric: score for score in result.scores}
    for metric, start in (("nll", 0), ("nll_beyond", 200)):
        means = np.nanmean(losses[:, start:], axis=1)
        assert scores[metric].value == pytest.approx(means.mean(), abs=1e-3)
        assert [getattr(sample, metric) for sample in result.samples] == pytest.approx(
            np.repeat(means, 6), abs=1e-3
        )
    assert not scores["nll_beyond"].higher_is_better
    assert scores["nll_beyond"].value != scores["nll"].value
    without = multi_key(profile="tiny", num_contexts=3).evaluate(cell)
    assert without.scores == tuple(one for one in result.scores if one.metric != "nll_beyond")
    assert without.samples == tuple(replace(one, nll_beyond=None) for one in result.samples)
    # A length that ends before the position has no such tokens.
    short = multi_key(profile="tiny", num_contexts=3, nll_beyond=300).evaluate(cell)
    assert short.scores == without.scores


def test_more_keys_than_the_model_has_families_are_refused():
    with pytest.raises(UnavailableError, match="at most 8 keys and 15 absent keys"):
        multi_key(profile="tiny", num_keys=9).prompts(request())
    reason = multi_key(profile="tiny").unavailable(TOY, "code", 20)
    assert reason == "eval_length 20: a context needs at least 26 tokens"
