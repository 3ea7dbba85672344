"""Labels of several tokens by likelihood, against whole texts passed without a cache in float64."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from lce_core.benchmarks import Profile, Prompt, PromptBenchmark
from lce_core.benchmarks._prompted.metrics import label_scores
from lce_core.evaluation.passes import counted
from lce_core.extension.extending import extend
from tests.support.cells import TOY
from tests.support.cells import request as cell
from tests.support.extended_models import method

LABELS = ("garden", "hall", "a")
LENGTH = 200


class Named(PromptBenchmark):
    """Two questions about each of two texts; the answers are never generated right."""

    profiles: ClassVar = {"clean": Profile("two texts")}
    answer_tokens = 8

    def score_answer(self, task, prompt, answer):
        return 0.0


def prompts() -> list[Prompt]:
    rng = np.random.default_rng(5)
    texts = rng.integers(256, size=(2, 150))
    return [
        Prompt(
            np.concatenate([text, rng.integers(256, size=size)]),
            label,
            labels=LABELS,
            context_tokens=150,
            cluster=f"text-{number}",
        )
        for number, text in enumerate(texts)
        for size, label in ((7, "garden"), (20, "a"))
    ]


@pytest.mark.parametrize("name", ["none", "dynamic_yarn"])
@torch.no_grad()
def test_margins_are_those_of_whole_texts_and_a_context_passes_once(name):
    model = extend(TOY.initialise(3).double().eval(), TOY, method(name), target=256)
    benchmark = Named()
    request = replace(cell(benchmark, LENGTH), model=model)
    with counted(model) as shared:
        samples = benchmark.samples(request, prompts())
    with counted(model) as apart:
        alone = benchmark.samples(replace(request, savings=False), prompts())
    assert apart.tokens - shared.tokens >= 2 * 150
    model.begin_request(LENGTH)
    for sample, other, prompt in zip(samples, alone, prompts(), strict=True):
        found = {}
        for label in LABELS:
            ids = np.array(request.tokenizer.encode(f" {label}", add_special_tokens=False))
            text = torch.from_numpy(np.concatenate([prompt.ids, ids]))
            states = model.hidden_states(text[None])[0]
            logits = model.model.get_output_embeddings()(states).log_softmax(-1)
            rows = logits[len(prompt.ids) - 1 : -1]
            found[label] = float(rows.gather(-1, text[len(prompt.ids) :, None]).sum())
        right = found.pop(prompt.reference)
        assert sample.margin == pytest.approx(right - np.mean([*found.values()]), abs=1e-5)
        assert other.margin == pytest.approx(sample.margin, abs=1e-6)
        best = max(found, key=found.__getitem__)
        assert sample.likeliest == (prompt.reference if right > found[best] else best)
    scores = {one.metric: one.value for one in label_scores(samples)}
    chosen = [one.likeliest == one.reference for one in samples]
    margins = [one.margin for one in samples]
    assert scores == pytest.approx({"choice": np.mean(chosen), "margin": np.mean(margins)})
