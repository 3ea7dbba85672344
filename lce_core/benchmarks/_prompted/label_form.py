"""Profile of benchmarks whose answer is one label of a closed set: labels compared by likelihood.

The questions about one context share its forward pass, and the labels of a question share the pass
over the question (`lce_core.evaluation.shared_context`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

import numpy as np

from lce_core.benchmarks._base import CellRequest, Sample, Score, score
from lce_core.benchmarks._prompted.benchmark import PromptBenchmark, PromptForm
from lce_core.benchmarks._prompted.retrieval import Prompt, TokenIds, encode
from lce_core.statistics.estimates import mean_estimate


@dataclass(frozen=True, eq=False)
class LabelPrompt(Prompt):
    """A prompt that consists of a context and a question, with the labels that could answer it."""

    labels: tuple[str, ...] = field(kw_only=True)
    """Labels to compare, at least two, with `reference` among them."""
    context_tokens: int = field(kw_only=True)
    """Tokens before the question, at least one. Successive prompts share a context's forward
    pass."""

    @property
    def context(self) -> bytes:
        return self.ids[: self.context_tokens].tobytes()


@dataclass(frozen=True)
class LabelSample(Sample):
    """A scored prompt with its most likely label."""

    likeliest: str = ""


@dataclass(frozen=True)
class LabelForm(PromptForm):
    """A profile whose prompts are `LabelPrompt`s.

    Two metrics need no generated text: `choice`, the fraction of questions whose right label is
    more likely than every other, and `margin`, the log-probability of the right label minus the
    mean log-probability of the others, in nats. A label's log-probability is the sum over its
    tokens, after a space.
    """

    def samples(
        self, benchmark: PromptBenchmark, request: CellRequest, prompts: Sequence[Prompt]
    ) -> tuple[LabelSample, ...]:
        asked = [prompt for prompt in prompts if isinstance(prompt, LabelPrompt)]
        answers: list[str] = []
        likelihoods: list[tuple[float, ...]] = []
        for _, group in groupby(asked, key=lambda prompt: prompt.context):
            found = self._asked(benchmark, request, list(group))
            answers += found[0]
            likelihoods += found[1]
            request.report(len(answers), len(prompts))
        scored = benchmark.scored(request.task, prompts, answers)
        return tuple(
            LabelSample(**{**vars(sample), **_compared(prompt, values)})
            for sample, prompt, values in zip(scored, asked, likelihoods, strict=True)
        )

    def _asked(
        self, benchmark: PromptBenchmark, request: CellRequest, prompts: Sequence[LabelPrompt]
    ) -> tuple[list[str], tuple[tuple[float, ...], ...]]:
        """Return an answer and the labels' log-probabilities in nats for prompts of one context."""
        from lce_core.evaluation.shared_context import Question, ask

        def text_of(ids: TokenIds) -> str:
            return str(request.tokenizer.decode(ids.tolist(), skip_special_tokens=True))

        def complete(prompt: Prompt, ids: TokenIds) -> bool:
            return benchmark.complete(request.task, prompt, text_of(ids))

        num_tokens = prompts[0].context_tokens
        questions = [
            Question(
                prompt.ids[num_tokens:],
                tuple(label_ids(request, label) for label in prompt.labels),
                partial(complete, prompt) if request.savings else None,
            )
            for prompt in prompts
        ]
        found = ask(
            request.model,
            prompts[0].ids[:num_tokens],
            questions,
            max_new_tokens=benchmark.new_tokens(request.task),
            num_tokens=request.eval_length,
            share=request.savings,
        )
        return [text_of(ids) for ids in found.answers], found.log_likelihoods

    def scores(self, benchmark: PromptBenchmark, samples: Sequence[Sample]) -> tuple[Score, ...]:
        clusters = [sample.cluster for sample in samples]
        labelled = [sample for sample in samples if isinstance(sample, LabelSample)]
        right = [float(sample.likeliest == sample.reference) for sample in labelled]
        margins = [sample.margin for sample in labelled if sample.margin is not None]
        return (
            *benchmark.scores(samples),
            score("choice", mean_estimate(right, clusters), higher_is_better=True),
            score("margin", mean_estimate(margins, clusters), higher_is_better=True),
        )


def label_ids(request: CellRequest, label: str) -> TokenIds:
    """Return the token ids of a label as an answer, after a space."""
    return np.array(encode(request, f" {label}", special_tokens=False), dtype=np.int64)


def _compared(prompt: LabelPrompt, values: Sequence[float]) -> dict[str, object]:
    by_label = dict(zip(prompt.labels, values, strict=True))
    right = by_label.pop(prompt.reference)
    wrong = max(by_label, key=by_label.__getitem__)
    return {
        "margin": right - float(np.mean([*by_label.values()])),
        "likeliest": prompt.reference if right > by_label[wrong] else wrong,
    }
