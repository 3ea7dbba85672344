"""Short-context suite of lm-evaluation-harness: what an extension loses on short prompts.

Prompts, shots, seeds and metrics are the harness's. A cell's `accuracy` is the metric that papers
report (`ShortTask.metric`), in MMLU `acc_macro`, the mean of the 57 subjects' acc; the harness's
own number for the group, acc, is the mean over questions. The acc of truthfulqa_mc2 is the share of
the choices' probability that true answers have (mc2). All metrics are stored under their names too.

As in the harness, the start of a prompt that exceeds `eval_length` is removed; the metric `cut` is
the fraction of such prompts. Fewer questions are evenly spaced over a data set, because its first
questions are not a random sample.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
from pydantic import Field

from lce_core.benchmarks import (
    Answers,
    Benchmark,
    CellData,
    CellRequest,
    CellResult,
    DataSet,
    Examples,
    Profile,
    Sample,
    Score,
    Sequences,
    Source,
    calls,
    encode,
    score,
)
from lce_core.benchmarks.short_context.data import TASKS
from lce_core.errors import UnavailableError
from lce_core.models import LanguageModel
from lce_core.statistics.estimates import Estimate, bootstrap_mean, mean_estimate, wilson

NEW_TOKENS = 256
"""Maximum tokens of a generated answer; the harness's default."""


class ShortContext(Benchmark):
    """Accuracy on six tasks whose prompts fit into the trained context of most models."""

    kind = "understanding"
    unit = "accuracy"
    seeded = False
    default_metric = "accuracy"
    profiles = {
        "faithful": Profile("all questions"),
        "clean": Profile("all questions"),
        "fast": Profile("500 questions per task, evenly spaced over its data set", num_samples=500),
        "tiny": Profile("20 questions per task, to try the installation", num_samples=20),
    }

    num_samples: int | None = Field(default=None, gt=0)
    """Questions per task; None means all (faithful, clean), 500 (fast), 20 (tiny)."""

    def tasks(self) -> tuple[str, ...]:
        return tuple(TASKS)

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        answer = NEW_TOKENS if TASKS[task].metric == "exact_match" else 1
        if eval_length <= answer:
            return f"eval_length {eval_length}: task {task} needs at least {answer + 1} tokens"
        if find_spec("lm_eval") is None:
            return "lm-evaluation-harness is not installed: pip install 'lce[short-context]'"
        return None

    def num_tokens(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        return self._requests(task) * min(TASKS[task].request_tokens, eval_length)

    def distinct_share(self, task: str, prompt_tokens: float) -> float:
        definition = TASKS[task]
        # Cut prompts, in cells shorter than the mean prompt, share no prefix.
        if definition.own_tokens is None or prompt_tokens < definition.request_tokens:
            return 1.0
        return definition.own_tokens / definition.request_tokens

    def num_independent(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        return self._requests(task) // TASKS[task].requests

    def answers(self, task: str) -> Answers:
        written = TASKS[task].metric == "exact_match"
        return Answers(self._requests(task), NEW_TOKENS) if written else Answers()

    def data_sequences(self, cell: CellData) -> Sequences:
        ratio = LanguageModel.bytes_per_token / cell.base_model.bytes_per_token
        expected = round(ratio * TASKS[cell.task].request_tokens)
        return Sequences({min(cell.eval_length, expected): self._requests(cell.task)})

    def data_samples(self, cell: CellData) -> int:
        task = TASKS[cell.task]
        split, data = list(task.splits.items())[-1]
        return data.num_rows(cell.data_folders, split, task.num_questions)

    def reads(self, task: str) -> tuple[DataSet, ...]:
        return tuple(TASKS[task].splits.values())

    def evaluate(self, request: CellRequest) -> CellResult:
        if reason := self.unavailable(request.base_model, request.task, request.eval_length):
            raise UnavailableError(
                f"task {request.task!r}",
                reason,
                "a task that can be evaluated here at this length",
                "evaluate longer contexts, or install lm-evaluation-harness where it is missing",
            )
        from lce_core.benchmarks.short_context.harness import ExtendedLM, answered_questions

        lm = ExtendedLM(request, new_tokens=NEW_TOKENS)
        answered = answered_questions(
            lm, request.task, request.data_folders, self.setting("num_samples")
        )
        samples = tuple(_sample(index, request, *one) for index, one in enumerate(answered))
        cut = score("cut", wilson(lm.num_cut, lm.num_requests), higher_is_better=False)
        scores = (*_scores(samples, [question for _, question in answered]), cut)
        return CellResult(scores=scores, samples=samples, sequences=Sequences.of(lm.lengths))

    def _requests(self, task: str) -> int:
        definition = TASKS[task]
        every = definition.num_questions
        return min(every, self.setting("num_samples") or every) * definition.requests


def best_choice(log_likelihoods: Sequence[float], lengths: Sequence[int] | None = None) -> int:
    """Return the index of the most likely choice, per character if `lengths` are given."""
    return int(np.argmax(np.divide(log_likelihoods, lengths or 1)))


def _sample(
    index: int, request: CellRequest, subject: str | None, question: Mapping[str, Any]
) -> Sample:
    metric = TASKS[request.task].metric
    context = question["arguments"][0][0]
    answers, target = question["filtered_resps"], question["target"]
    if metric == "exact_match":
        prediction, reference = answers[0], " | ".join(target)
    else:
        choices = [continuation.removeprefix(" ") for _, continuation in question["arguments"]]
        lengths = list(map(len, choices)) if metric == "acc_norm" else None
        prediction = choices[best_choice([value for value, _ in answers], lengths)]
        reference = choices[int(target)]
    num_tokens = min(len(encode(request, context)), request.eval_length)
    value = float(question[metric])
    return Sample(index, num_tokens, value, None, prediction, reference, subject)


def _scores(samples: Sequence[Sample], questions: Sequence[Mapping[str, Any]]) -> list[Score]:
    clusters = [sample.cluster for sample in samples]
    accuracy = [sample.score for sample in samples]
    found = {"accuracy": mean_estimate(accuracy, clusters)}
    if clusters[0] is not None:
        found["accuracy"] = found["acc_macro"] = over_subjects(accuracy, clusters)
    for metric in questions[0]["metrics"]:
        values = [float(question[metric]) for question in questions]
        found[metric] = mean_estimate(values, clusters)
    return [score(metric, value, higher_is_better=True) for metric, value in found.items()]


def over_subjects(values: Sequence[float], subjects: Sequence[str | None]) -> Estimate:
    """Return the mean over subjects of each subject's mean, as in the Open LLM Leaderboard."""
    sizes = Counter(subjects)
    weights = [1 / sizes[subject] for subject in subjects]
    return bootstrap_mean(values, weights=weights, clusters=subjects)


BENCHMARK = ShortContext
SOURCE = Source(
    paper="arXiv:2309.00071",
    place="Tables 3 and 10; PIQA and TriviaQA: arXiv:2412.07171, Table 5",
    reference="https://github.com/EleutherAI/lm-evaluation-harness/tree/4e7e0d4",
    differs="requests are batched by length instead of padded; the length includes all tokens of"
    " the answer, in the harness all but the last",
)
EVIDENCE = (
    calls(
        ShortContext.distinct_share,
        0.273,
        "by hand: 970 tokens of context and four endings of 30, of four times 1,000",
        tolerance=1e-3,
        parameters={},
        task="hellaswag",
        prompt_tokens=4096,
    ),
    calls(best_choice, 0, "acc: the larger value", log_likelihoods=(-10.0, -12.0)),
    calls(
        best_choice,
        1,
        "acc_norm by hand: -2 and -1.2 a character",
        log_likelihoods=(-10.0, -12.0),
        lengths=(5, 10),
    ),
)
EXAMPLES: Examples = ({"num_samples": 2},)
VERSION = 2
