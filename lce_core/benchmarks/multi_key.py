"""Retrieval of several keys from one natural text that the model reads once.

A context is an excerpt of one document with one inserted sentence per key, "The pass key of NAME is
KEY.", at stratified positions. The model reads the context once and then answers each question from
the context's KV cache, without seeing the other questions. A sample is one question; the bootstrap
intervals resample documents.

Metrics besides accuracy, the fraction of answers with the right key as their first integer:

  margin: log-probability of the right key minus the mean log-probability of keys that the text does
    not contain, in nats; it distinguishes methods even if all their answers are wrong, or right
  nll: mean negative log-likelihood in nats of the text's tokens, without the inserted sentences and
    the token after each, from the same forward pass; `token_nll` contains the mean by position
  nll_beyond: nll of the tokens at or after the position `nll_beyond`
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from lce_core.benchmarks import (
    DEFAULT_SPAN,
    MIN_TEXT,
    CellRequest,
    CellResult,
    Examples,
    KeyTask,
    OverText,
    Profile,
    Prompt,
    PromptBenchmark,
    Sample,
    Score,
    Source,
    TokenIds,
    calls,
    column_mean,
    encode,
    generator,
    keys_of,
    marking,
    passed_share,
    score,
    token_ids,
    token_name,
    without_keys,
)
from lce_core.benchmarks.nll_by_position import bin_means
from lce_core.errors import UnavailableError
from lce_core.evaluation.metrics import first_integer, has_complete_integer
from lce_core.models import LanguageModel
from lce_core.statistics.estimates import mean_estimate

NAMES = (
    "Amsterdam", "Athens", "Berlin", "Boston", "Cairo", "Chicago", "Dublin", "Geneva", "Istanbul",
    "London", "Madrid", "Moscow", "Munich", "Oslo", "Paris", "Prague", "Rome", "Sydney", "Tokyo",
    "Vienna",
)  # fmt: skip
QUESTION_TOKENS = 50
"""Approximate tokens that pass for one question, for cost estimates: the question, the five keys
whose probabilities are compared, and the answer."""


class Fact(NamedTuple):
    """A key, the sentence that states it and the question about it, both as token ids."""

    sentence: TokenIds
    question: TokenIds
    key: str
    absent: tuple[str, ...]


class MultiKey(OverText, PromptBenchmark):
    """Retrieval of several keys from one text: `accuracy` is the fraction of right answers."""

    profiles = {
        "clean": Profile("20 contexts with six keys each", num_contexts=20),
        "fast": Profile("eight contexts with six keys each", num_contexts=8),
        "tiny": Profile(
            "ten contexts with six key tokens each, for base models with key tokens",
            num_contexts=10,
            keys=KeyTask(),
        ),
    }
    answer_tokens = 8
    """A space, five digits and the token after the number."""
    sample_metrics = ("margin", "nll", "nll_beyond")
    drawn_as = "multi_key"

    num_contexts: int | None = Field(default=None, gt=0)
    """Contexts per cell; None means 20 (clean), 8 (fast), 10 (tiny)."""
    num_keys: int = Field(default=6, gt=0, le=len(NAMES))
    """Number of keys per context. There is one question per key."""
    num_absent: int = Field(default=4, gt=0)
    """Number of wrong keys, absent from the text, with which `margin` compares the right key."""
    nll_beyond: int | None = Field(default=None, gt=0)
    """First position in tokens that the metric `nll_beyond` includes, such as the base model's
    trained context. None omits the metric."""

    def reads_held_out(self, task: str) -> bool:
        return task not in self.data_sets

    def excerpt_tokens(self, base_model: LanguageModel, task: str, eval_length: int) -> int:
        return eval_length if self.reads_held_out(task) else 0

    def num_prompts(self, task: str) -> int:
        return self.num_groups(task) * self.num_keys

    def num_groups(self, task: str) -> int:
        return int(self.setting("num_contexts"))

    def num_parts(self, task: str, *, half: bool) -> int:
        return self.num_groups(task)

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        least = MIN_TEXT + self.answer_tokens
        if not self.in_words:
            if base_model.keys is None:
                return without_keys(base_model)
            least = MIN_TEXT + base_model.keys.families + 2
        reason = f"eval_length {eval_length}: a context needs at least {least} tokens"
        return None if eval_length >= least else reason

    def distinct_share(self, task: str, prompt_tokens: float) -> float:
        return passed_share(self.num_keys, QUESTION_TOKENS, prompt_tokens)

    def build(self, request: CellRequest) -> list[Prompt]:
        draws = self.draws(request)
        texts = self._texts(request, len(draws))
        return [
            prompt
            for text, rng in zip(texts, draws, strict=True)
            for prompt in self._about(request, *text, rng)
        ]

    def key_prompts(self, request: CellRequest, task: KeyTask) -> list[Prompt]:
        return self.build(request)

    def slack_tokens(self, request: CellRequest) -> int:
        return QUESTION_TOKENS // 8  # a context leaves room for its longest question

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        return float(first_integer(answer) == int(prompt.reference))

    def complete(self, task: str, prompt: Prompt, answer: str) -> bool:
        return has_complete_integer(answer)

    def scores(self, samples: Sequence[Sample]) -> tuple[Score, ...]:
        return (*super().scores(samples), column_mean(samples, "margin"))

    def answered(self, request: CellRequest, prompts: Sequence[Prompt]) -> CellResult:
        samples, texts, documents = list[Sample](), list[int](), list[str]()
        shape = self.num_groups(request.task), request.eval_length
        losses = np.full(shape, np.nan, dtype=np.float32)
        for index, (asked, found, nll) in enumerate(self.answered_contexts(request, prompts)):
            samples += found
            texts += [index] * len(asked)
            documents.append(str(asked[0].cluster))
            losses[index, 1 : 1 + len(nll)] = nll
            for start, end in zip(asked[0].inserted[::2], asked[0].inserted[1::2], strict=True):
                # Exclude the inserted sentence and the token after it, which is as unexpected.
                losses[index, start : end + 1] = np.nan
        seen = ~np.isnan(losses)
        totals = np.where(seen, losses, 0.0).sum(axis=0, dtype=np.float64)
        means = self._text_means(losses)
        beyond = means.get("nll_beyond")
        samples = [
            replace(sample, nll=means["nll"][text], nll_beyond=beyond[text] if beyond else None)
            for sample, text in zip(samples, texts, strict=True)
        ]
        return CellResult(
            scores=(
                *self.scores(samples),
                *(
                    score(metric, mean_estimate(values, documents), higher_is_better=False)
                    for metric, values in means.items()
                ),
            ),
            samples=tuple(samples),
            token_nll=bin_means(totals, seen.sum(axis=0), DEFAULT_SPAN),
            arrays={"nll": losses.astype(np.float16)},
        )

    def _text_means(self, losses: NDArray[np.float32]) -> dict[str, list[float]]:
        """Return the metrics `nll` and `nll_beyond`, by name, with one mean in nats per text."""
        starts = {"nll": 0}
        beyond = losses[:, self.nll_beyond :]
        if self.nll_beyond is not None and not np.isnan(beyond).all(axis=1).any():
            starts["nll_beyond"] = self.nll_beyond
        return {
            metric: np.asarray(np.nanmean(losses[:, start:], axis=1, dtype=np.float64)).tolist()
            for metric, start in starts.items()
        }

    def _texts(self, request: CellRequest, count: int) -> list[tuple[str, TokenIds]]:
        """Return `count` disjoint excerpts of the cell's length: (document's name, token ids)."""
        length, task = request.eval_length, request.task
        documents = self.documents(request, at_least=length)
        names, tokens = documents.names, documents.tokens
        rng = generator(self.drawn_as, "documents", task, request.seed)
        order = rng.permutation(len(names)).tolist()
        rounds = max(map(len, tokens)) // length
        # Take the first excerpt of every document before the second of any.
        places = [
            (number, turn * length)
            for turn in range(rounds)
            for number in order
            if (turn + 1) * length <= len(tokens[number])
        ]
        if len(places) < count:
            raise UnavailableError(
                f"task {task!r}",
                f"{len(places)} texts of {length} tokens in the documents that are long enough",
                f"{count} texts, one for each context",
                "lower num_contexts or the length, use longer documents, or for a domain raise"
                " evaluation.held_out_tokens",
            )
        return [
            (names[number], tokens[number][start : start + length].astype(np.int64))
            for number, start in places[:count]
        ]

    def _about(
        self, request: CellRequest, document: str, text: TokenIds, rng: np.random.Generator
    ) -> Iterator[Prompt]:
        begin = np.array(encode(request, "") if self.in_words else [], dtype=np.int64)
        draw = number_facts if self.in_words else token_facts
        facts = draw(request, self.num_keys, self.num_absent, rng)
        turns = [len(fact.question) + self.longest_answer(request.task) for fact in facts]
        spent = len(begin) + sum(len(fact.sentence) for fact in facts)
        spent += sum(turns) if self.conversation else max(turns)
        room = request.eval_length - spent
        if room < MIN_TEXT:
            raise UnavailableError(
                "eval_length",
                f"{request.eval_length} tokens, of which keys, question and answer take {spent}",
                f"at least {spent + MIN_TEXT} tokens, so that {MIN_TEXT} remain for text",
                "use a longer length, or lower num_keys",
            )
        depths = [(index + rng.random()) / len(facts) for index in range(len(facts))]
        cuts = [round(depth * room) for depth in depths]
        pieces, inserted, size = [begin], list[int](), len(begin)
        for part, fact in zip(np.split(text[:room], cuts), facts, strict=False):
            pieces += [part, fact.sentence]
            size += len(part) + len(fact.sentence)
            inserted += [size - len(fact.sentence), size]
        context = np.concatenate([*pieces, text[cuts[-1] : room]])
        for fact, depth in zip(facts, depths, strict=True):
            yield Prompt(
                np.concatenate([context, fact.question]),
                fact.key,
                100 * depth,
                cluster=document,
                context_tokens=len(context),
                labels=(fact.key, *fact.absent),
                inserted=tuple(inserted),
                controls=tuple(
                    tuple(np.concatenate([begin, *shown, fact.question]).tolist())
                    for shown in ((), (fact.sentence,))
                ),
            )


def number_facts(
    request: CellRequest, num_keys: int, num_absent: int, rng: np.random.Generator
) -> list[Fact]:
    """Draw distinct numbers as keys of one context, and `num_absent` wrong ones for all keys."""
    names = rng.choice(NAMES, size=num_keys, replace=False)
    numbers = rng.choice(90_000, size=num_keys + num_absent, replace=False) + 10_000
    absent = tuple(str(number) for number in numbers[num_keys:])
    return [
        Fact(
            token_ids(request, f"\nThe pass key of {name} is {number}.\n"),
            token_ids(request, f"\nWhat is the pass key of {name}? The pass key of {name} is"),
            str(number),
            absent,
        )
        for name, number in zip(names, numbers[:num_keys], strict=True)
    ]


def token_facts(
    request: CellRequest, num_keys: int, num_absent: int, rng: np.random.Generator
) -> list[Fact]:
    """Draw key tokens of distinct families, and `num_absent` wrong ones of each key's family."""
    keys = keys_of(request)
    if num_keys > keys.families or num_absent >= keys.members:
        raise UnavailableError(
            "num_keys, num_absent",
            f"{num_keys} keys and {num_absent} absent keys",
            f"at most {keys.families} keys and {keys.members - 1} absent keys for the base"
            f" model {request.base_model.plugin_name}",
            "lower num_keys or num_absent",
        )
    facts = []
    for family in rng.choice(keys.families, size=num_keys, replace=False):
        members = rng.choice(keys.members, size=1 + num_absent, replace=False)
        ids = keys.ids(family, members)
        names = [token_name(request, int(token)) for token in ids]
        question = np.array([keys.first_query + family], dtype=np.int64)
        facts.append(Fact(ids[:1], question, names[0], tuple(names[1:])))
    return facts


BENCHMARK = MultiKey
SOURCE = Source(
    paper="own",
    place="multi-key retrieval as in RULER (arXiv:2404.06654), asked on a shared prefill",
    reference="own",
)
EVIDENCE = (
    calls(
        MultiKey.distinct_share,
        16634 / 98304,
        "by hand: 16,384 tokens and five questions of 50, of six times 16,384",
        tolerance=1e-12,
        parameters={},
        task="code",
        prompt_tokens=16_384,
    ),
    *(
        calls(MultiKey.score_answer, expected, origin, **marking("code", "48213", answer))
        for answer, expected, origin in (
            (" 48213.", 1.0, "the first integer is the key"),
            (" 4821", 0.0, "a part of the key"),
            (" the key 48213", 1.0, "text before the first integer is ignored"),
        )
    ),
)
EXAMPLES: Examples = ({"num_contexts": 2, "num_keys": 2},)
VERSION = 1
