"""Compare the labels that could answer a question by their likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lce_core.benchmarks._base import Sample, Score, score
from lce_core.benchmarks._prompted.retrieval import Prompt
from lce_core.statistics.estimates import mean_estimate


def compared(sample: Sample, prompt: Prompt, log_likelihoods: Sequence[float]) -> Sample:
    """Add to a sample what the log-probabilities in nats of its prompt's labels say."""
    by_label = dict(zip(prompt.labels, log_likelihoods, strict=True))
    right = by_label.pop(prompt.reference)
    wrong = max(by_label, key=by_label.__getitem__)
    return replace(
        sample,
        margin=right - float(np.mean([*by_label.values()])),
        likeliest=prompt.reference if right > by_label[wrong] else wrong,
    )


def label_scores(samples: Sequence[Sample]) -> tuple[Score, ...]:
    """Return the metrics `choice` and `margin` of prompts with labels; else nothing."""
    right = [float(one.likeliest == one.reference) for one in samples if one.likeliest is not None]
    if not right:
        return ()
    choice = mean_estimate(right, [sample.cluster for sample in samples])
    return score("choice", choice, higher_is_better=True), margin_score(samples)


def margin_score(samples: Sequence[Sample]) -> Score:
    """Return the mean `margin` of prompts with labels, in nats."""
    margins = [sample.margin for sample in samples if sample.margin is not None]
    clusters = [sample.cluster for sample in samples]
    return score("margin", mean_estimate(margins, clusters), higher_is_better=True)
