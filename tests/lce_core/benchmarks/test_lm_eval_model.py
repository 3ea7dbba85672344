"""An extended model as the harness asks it, against brute force on the stock model."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lce_core.benchmarks.short_context.lm_eval_model import ExtendedLM
from lce_core.errors import SpecError, UnavailableError
from tests.support.cells import TOY
from tests.support.data.short_context_rows import WORDS, instances, toy_request


def _brute_force(stock: torch.nn.Module, context: str, continuation: str) -> tuple[float, bool]:
    ids = torch.tensor([list((context + continuation).encode())])
    with torch.no_grad():
        logs = stock(ids).logits[0].double().log_softmax(-1)
    first = len(context.encode())
    places = range(first, ids.shape[1])
    total = sum(float(logs[place - 1, ids[0, place]]) for place in places)
    return total, all(int(logs[place - 1].argmax()) == ids[0, place] for place in places)


@pytest.mark.parametrize("batch_tokens", [1, 8192])
def test_log_likelihoods_are_those_of_the_stock_model_text_by_text(batch_tokens):
    rng, stock = np.random.default_rng(5), TOY.initialise(2).eval()
    sizes = rng.integers(1, 9, size=(12, 2))
    pairs = [[" ".join(rng.choice(WORDS, size=size)) for size in pair] for pair in sizes]
    texts = [(context, f" {continuation}") for context, continuation in pairs]
    texts += [("One question?", letter) for letter in "ABCD"]
    lm = ExtendedLM(toy_request(batch_tokens=batch_tokens), new_tokens=8)
    found = lm.loglikelihood(instances("loglikelihood", texts))
    for text, (value, is_greedy) in zip(texts, found, strict=True):
        expected, expected_greedy = _brute_force(stock, *text)
        assert value == pytest.approx(expected, abs=1e-3)
        assert is_greedy == expected_greedy


def test_generated_answers_are_greedy_up_to_the_stop_string():
    stock, request = TOY.initialise(2).eval(), toy_request()
    contexts = ["the ship", "rain fell on seven", "why"]
    expected = []
    for context in contexts:
        ids = list(context.encode())
        for _ in range(12):
            with torch.no_grad():
                ids.append(int(stock(torch.tensor([ids])).logits[0, -1].argmax()))
        expected.append(request.tokenizer.decode(ids[len(context) :], skip_special_tokens=True))
    stop = expected[0][2]
    settings = {"until": [stop], "do_sample": False, "temperature": 0.0}
    for savings in (True, False):
        lm = ExtendedLM(replace(request, savings=savings), new_tokens=12)
        requests = instances("generate_until", [(context, settings) for context in contexts])
        assert lm.generate_until(requests) == [text.split(stop)[0] for text in expected]


def test_requests_that_the_model_cannot_answer_are_refused():
    lm = ExtendedLM(toy_request(20), new_tokens=8)
    with pytest.raises(SpecError, match="without beginning- or end-of-sequence token"):
        lm.loglikelihood(instances("loglikelihood", [("", "a")]))
    with pytest.raises(UnavailableError, match="at least 31"):
        lm.loglikelihood(instances("loglikelihood", [("a", "b" * 30)]))
    with pytest.raises(SpecError, match="at least 1 token of each"):
        lm.loglikelihood(instances("loglikelihood", [("a", "")]))
