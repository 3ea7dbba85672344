"""Questions on a shared context, against each question's whole text passed without a cache."""

import numpy as np
import pytest
import torch

from lce_core.contracts.tiny_models import VOCABULARY
from lce_core.errors import SpecError
from lce_core.evaluation.shared_context import Question, ask
from lce_core.extension.extended_model import ExtendedModel
from tests.support.extended_models import WITH_DEFAULTS
from tests.support.toy_models import tiny

TOKENS = 40
"""Request length; the context of 22 tokens is longer than the 16 that the model was made for."""


def log_probabilities(model: ExtendedModel, text: np.ndarray) -> torch.Tensor:
    """Log-probabilities (tokens, vocabulary) after each token of a text passed as a whole."""
    states = model.hidden_states(torch.from_numpy(text[None]))[0]
    return model.model.get_output_embeddings()(states).log_softmax(-1)


@torch.no_grad()
@pytest.mark.parametrize("conversation", [False, True])
@pytest.mark.parametrize("name", WITH_DEFAULTS)
def test_questions_are_answered_as_their_whole_texts_passed_alone(name, conversation):
    model, rng = tiny(name), np.random.default_rng(4)
    context = rng.integers(VOCABULARY, size=22)
    questions = [
        Question(rng.integers(VOCABULARY, size=size), tuple(rng.integers(VOCABULARY, size=(2, n))))
        for size, n in ((1, 1), (5, 3))
    ]
    found, apart = (
        ask(
            model,
            context,
            questions,
            max_new_tokens=2,
            num_tokens=TOKENS,
            share=share,
            conversation=conversation,
        )
        for share in (True, False)
    )
    assert [list(one) for one in apart.answers] == [list(one) for one in found.answers]
    np.testing.assert_allclose(apart.nll, found.nll, atol=1e-6)
    for one, other in zip(apart.log_likelihoods, found.log_likelihoods, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    alone = log_probabilities(model, context)
    expected = -alone[:-1].gather(-1, torch.from_numpy(context[1:, None]))[:, 0]
    np.testing.assert_allclose(found.nll, expected, atol=1e-5)
    before = context
    for question, answer, choices in zip(
        questions, found.answers, found.log_likelihoods, strict=True
    ):
        asked = np.concatenate([before, question.ids])
        for choice, value in zip(question.choices, choices, strict=True):
            after = log_probabilities(model, np.concatenate([asked, choice]))[len(asked) - 1 : -1]
            own = after.gather(-1, torch.from_numpy(choice)[:, None]).sum()
            assert value == pytest.approx(float(own), abs=1e-5)
        for length, token in enumerate(answer):
            logits = log_probabilities(model, np.concatenate([asked, answer[:length]]))[-1]
            if model.inserter:
                logits[model.inserter.token] = -torch.inf
            assert token == int(logits.argmax())
        assert len(answer) == 2
        if conversation:
            before = np.concatenate([asked, answer])


@pytest.mark.parametrize(
    ("context", "question", "num_tokens"), [(0, 3, 50), (10, 0, 50), (10, 3, 16)]
)
def test_texts_that_cannot_be_asked_are_refused(context, question, num_tokens):
    ids = np.arange(context), np.arange(question)
    with pytest.raises(SpecError, match=rf"context of {context} tokens.*request of {num_tokens}"):
        ask(tiny("none"), ids[0], [Question(ids[1])], max_new_tokens=4, num_tokens=num_tokens)


def test_a_conversation_has_to_fit_with_all_its_answers():
    model, context = tiny("none"), np.arange(1, 11)
    questions = [Question(np.arange(1, 6))] * 3
    needed = 10 + 3 * (5 + 4)
    found = ask(model, context, questions, max_new_tokens=4, num_tokens=needed, conversation=True)
    assert len(found.answers) == 3
    with pytest.raises(SpecError, match=f"27 for all .* a request of {needed - 1}"):
        ask(model, context, questions, max_new_tokens=4, num_tokens=needed - 1, conversation=True)
