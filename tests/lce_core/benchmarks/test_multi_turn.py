"""multi_turn: turns of a conversation against whole texts passed without a cache, in float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lce_core.contracts.benchmark_cases import held_out, words_tokenizer, wordy_model
from lce_core.evaluation.passes import counted
from lce_core.extension.extending import extend
from tests.support.cells import TOY, benchmark, request, values
from tests.support.extended_models import method

LENGTH = 400


def cell(asked, name: str, **changes):
    model = extend(TOY.initialise(3).double().eval(), TOY, method(name), target=256)
    return replace(request(asked, LENGTH), model=model, **changes)


def greedy(model, ids: list[int], count: int, ended) -> list[int]:
    found: list[int] = []
    while len(found) < count and not (found and ended(found)):
        states = model.hidden_states(torch.tensor([[*ids, *found]]))[0, -1:]
        found.append(int(model.model.get_output_embeddings()(states).argmax()))
    return found


@pytest.mark.parametrize("name", ["dynamic_yarn", "self_extend"])
@torch.no_grad()
def test_each_turn_follows_the_models_own_answers(name):
    asked = benchmark("multi_turn", profile="tiny", num_contexts=2, num_keys=4)
    requested = cell(asked, name)
    result = asked.evaluate(requested)
    model = requested.model
    prompts = asked.prompts(requested)
    assert len(prompts) == len(result.samples) == 8
    for first in (0, 4):
        history = prompts[first].ids[: prompts[first].context_tokens].tolist()
        for prompt, sample in zip(
            prompts[first : first + 4], result.samples[first : first + 4], strict=True
        ):
            history += prompt.ids[prompt.context_tokens :].tolist()
            model.begin_request(LENGTH)
            states = model.hidden_states(torch.tensor([history]))[0, -1:]
            likely = model.model.get_output_embeddings()(states).log_softmax(-1)[0]
            right, *absent = requested.tokenizer.convert_tokens_to_ids([*prompt.labels])
            margin = float(likely[right] - likely[absent].mean())
            assert sample.margin == pytest.approx(margin, abs=1e-5)
            history.append(int(likely.argmax()))
            answer = requested.tokenizer.convert_ids_to_tokens(history[-1])
            assert sample.prediction == answer


@torch.no_grad()
def test_answers_in_words_run_to_the_end_of_their_number_and_stay_in_the_conversation():
    asked = benchmark("multi_turn", num_contexts=1, num_keys=3)
    requested = replace(
        request(asked, 700),
        tokenizer=words_tokenizer(),
        held_out=held_out(in_words=True),
        model=wordy_model("none"),
    )
    prompts, found = asked.prompts(requested), asked.evaluate(requested)
    again = asked.evaluate(replace(requested, savings=False))
    assert [one.prediction for one in again.samples] == [one.prediction for one in found.samples]
    history: list[int] = []
    for prompt, sample in zip(prompts, found.samples, strict=True):
        history = history or prompt.ids[: prompt.context_tokens].tolist()
        history += prompt.ids[prompt.context_tokens :].tolist()
        requested.model.begin_request(700)

        def ended(ids: list[int], prompt=prompt) -> bool:
            text = requested.tokenizer.decode(ids, skip_special_tokens=True)
            return asked.complete("code", prompt, text)

        answer = greedy(requested.model, history, 8, ended)
        assert sample.prediction == requested.tokenizer.decode(answer, skip_special_tokens=True)
        history += answer
    assert len(history) <= 700


def test_a_context_passes_once_and_scores_are_given_by_turn():
    asked = benchmark("multi_turn", profile="tiny", num_contexts=3, num_keys=4)
    requested = cell(asked, "none")
    with counted(requested.model) as shared:
        found = asked.evaluate(requested)
    with counted(requested.model) as apart:
        alone = asked.evaluate(replace(requested, savings=False))
    assert shared.tokens < 3 * (LENGTH + 50) < apart.tokens
    assert [one.prediction for one in alone.samples] == [one.prediction for one in found.samples]
    scores = values(found)
    by_turn = np.reshape([one.score for one in found.samples], (3, 4)).mean(axis=0)
    np.testing.assert_allclose([scores[f"turn_{turn}"] for turn in (1, 2, 3, 4)], by_turn)
    assert scores["turn_slope"] == pytest.approx(by_turn[3] - by_turn[0])
    assert scores["accuracy"] == pytest.approx(by_turn.mean())
