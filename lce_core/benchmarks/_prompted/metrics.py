"""Metrics beside the score of answers, and checks of all prompts of a cell.

A model may answer without reading the context: from the question alone (`no_context`), or because
only the sentence with the answer matters to it (`local_context`). Both controls are scored on the
same samples, so a difference of methods can be compared with the difference of their controls.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lce_core.benchmarks._base import CellRequest, Sample, Score, score
from lce_core.benchmarks._prompted.retrieval import Prompt
from lce_core.kinds import CONTROLS
from lce_core.statistics.estimates import mean_estimate

CONTROL_TOKENS = 128
"""Assumed mean length of a control prompt for the cost model: instruction, sentence, question."""


def control_prompts(prompts: Sequence[Prompt], name: str) -> list[Prompt]:
    """Return the prompts of one control, in the same order; none if a prompt lacks this control."""
    place = CONTROLS.index(name)
    if any(len(prompt.controls) <= place for prompt in prompts):
        return []
    # Without `context_tokens` each prompt is answered alone: there is no context to share.
    return [
        replace(prompt, ids=np.array(prompt.controls[place], dtype=np.int64), context_tokens=0)
        for prompt in prompts
    ]


def prompt_checks(
    request: CellRequest, prompts: Sequence[Prompt], *, in_words: bool, in_one_text: bool
) -> dict[str, int]:
    """Return the columns of the catalog's view `prompt_checks` that count tokens and prompts."""
    tokenizer, found = request.tokenizer, {"num_cut": sum(one.is_cut for one in prompts)}
    begin = tokenizer.bos_token_id
    begins = [int(np.argmax(one.ids != begin)) for one in prompts]
    needed = request.base_model.architecture.needs_begin
    found["num_without_begin"] = begins.count(0) if needed else 0
    if begin is not None:
        found |= {"begin_tokens_min": min(begins), "begin_tokens_max": max(begins)}
        if in_one_text:
            found["num_begin_inside"] = sum(
                int(np.sum(one.ids == begin)) > at for one, at in zip(prompts, begins, strict=True)
            )
    names = tokenizer.all_special_tokens
    texts = [str(tokenizer.decode(one.ids, skip_special_tokens=True)) for one in prompts]
    found["num_special_names"] = sum(any(name in text for name in names) for text in texts)
    if local := control_prompts(prompts, "local_context"):
        found["num_answer_elsewhere"] = sum(
            len(occurrences(request, whole, in_words=in_words))
            > len(occurrences(request, part, in_words=in_words))
            for whole, part in zip(prompts, local, strict=True)
        )
    return found


def occurrences(request: CellRequest, prompt: Prompt, *, in_words: bool) -> list[float]:
    """Return the positions of the prompt's evidence, or else of its answers, from 0 to 1.

    If not `in_words`, the answers are names of key tokens.
    """
    if not in_words:
        keys = request.tokenizer.convert_tokens_to_ids([*prompt.right_answers])
        return [int(at) / len(prompt.ids) for at in np.flatnonzero(np.isin(prompt.ids, keys))]
    stated = (prompt.evidence,) if prompt.evidence else prompt.right_answers
    text = str(request.tokenizer.decode(prompt.ids, skip_special_tokens=True))
    pattern = rf"(?<!\w)(?:{'|'.join(map(re.escape, stated))})(?!\w)"
    return [match.start() / len(text) for match in re.finditer(pattern, text)]


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
    return score("choice", choice, higher_is_better=True), column_mean(samples, "margin")


def column_mean(samples: Sequence[Sample], column: str, metric: str = "") -> Score:
    """Return the mean of a column of samples as a metric, by default with the column's name."""
    values = [value for one in samples if (value := getattr(one, column)) is not None]
    estimate = mean_estimate(values, [sample.cluster for sample in samples])
    return score(metric or column, estimate, higher_is_better=True)
