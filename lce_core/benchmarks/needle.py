"""Needle in a haystack: the model finds one sentence (the needle) at ten depths of a long text.

`word_overlap` is LCEG's figure: the number of distinct expected words in the answer,
divided by the number of words of the expected sentence; one of LCEG's 12 words occurs twice, so the
maximum is 11/12. `rouge_1` is the ROUGE-1 F score of the answer against the whole needle, which
LCEG stores times ten; the expected words alone reach 8/11. `exact_match` is 1 if the answer
contains the expected phrase. `accuracy` repeats word_overlap in `faithful` and exact_match
otherwise. The prompts of a trial share haystack and needle: they are one independent sample.

`faithful` cuts every haystack from the start of the essays, so each depth is one sample instead. It
reproduces the BOS leak of LCEG's script: a BOS token that the tokenizer adds to every text occurs
four times in the prompt, once at the start, twice before the haystack and once before the needle.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from lce_core.benchmarks import (
    ESSAYS,
    WORDINGS,
    CellData,
    CellRequest,
    DataSet,
    Examples,
    KeyTask,
    Profile,
    Prompt,
    Sample,
    Score,
    Sequences,
    Source,
    Worded,
    calls,
    encode,
    encoded,
    essays,
    generator,
    long_streams,
    marking,
    random_slice,
    score,
    too_long,
)
from lce_core.errors import UnavailableError
from lce_core.evaluation.metrics import contains, rouge_1, word_overlap
from lce_core.statistics.estimates import mean_estimate


@dataclass(frozen=True)
class Fact:
    """A needle: a sentence to hide, the question about it, and the expected answer."""

    city: str
    phrase: str
    tail: str

    @property
    def answer(self) -> str:
        return f"{self.phrase} {self.tail}"

    @property
    def needle(self) -> str:
        return f"\nThe best thing to do in {self.city} is {self.answer}\n"

    @property
    def question(self) -> str:
        return f"What is the best thing to do in {self.city}?"


FACTS = (
    Fact("San Francisco", "eat a sandwich and sit in Dolores Park", "on a sunny day."),
    Fact("Lisbon", "ride the yellow tram up to the old castle", "before the heat of noon."),
    Fact("Nairobi", "watch young elephants drink warm milk", "late in the morning."),
    Fact("Kyoto", "walk through the bamboo grove and taste green tea", "after the rain."),
    Fact("Montreal", "climb the mountain stairs and share a bagel", "on the first day of snow."),
)
"""The needle of LCEG and gkamradt, and four others with the same sentence pattern."""
NEW_TOKENS = 50
RESERVED_TOKENS = 200
"""Tokens of the length that LCEG reserves for the answer and the text around the haystack."""
_ROUNDS = 8
"""Maximum attempts to build a prompt that fits. Each shortens the haystack by the excess tokens,
but decoding and tokenising again can add tokens."""
DEPTHS = (0, 11, 22, 33, 44, 56, 67, 78, 89, 100)
"""Positions of the needle in per cent of the context: ten, evenly spaced and rounded."""
_FACT_OF = {fact.answer: fact for fact in FACTS}


class Needle(Worded):
    """Needle in a haystack: the score is the fraction of needles found, over a grid of depths."""

    profiles = {
        "faithful": Profile(
            "LCEG's prompt with its BOS leak; one trial per depth in text from the start of the"
            " essays; score: word overlap (at most 11/12)",
            trials=1,
            needles=1,
            bos_leak=True,
        ),
        "clean": Profile(
            "LCEG's prompt without the leak; ten trials per depth, each with its own needle and"
            " random excerpt; score: exact match",
            trials=10,
        ),
        "fast": Profile("clean with two trials per depth", trials=2),
        "tiny": Profile(
            "one key token in held-out text, for base models with key tokens",
            trials=5,
            keys=KeyTask(),
        ),
    }
    answer_tokens = NEW_TOKENS

    haystack: Literal["essays", "held_out"] | None = None
    """Text around the needle; None means essays, or held-out text in profile tiny."""
    trials: int | None = Field(default=None, gt=0)
    """Prompts per depth; None means 1 (faithful), 10 (clean), 2 (fast), 5 (tiny). In words, a
    comparison over prompts needs six trials over all seeds."""
    needles: int | None = Field(default=None, gt=0, le=len(FACTS))
    """Number of different needles, which the trials use in turn; None means 1 (faithful), 5 (clean,
    fast)."""
    bos_leak: bool | None = None
    """Keep beginning-of-sequence tokens inside the prompt, as LCEG's script does; None: only in
    faithful."""

    @model_validator(mode="after")
    def _settings_have_effect(self) -> Self:
        if not self.in_words:
            text = ["haystack: essays"] if self.haystack == "essays" else []
            self.refuse(text + [name for name in ("needles", "bos_leak") if getattr(self, name)])
        return self

    def num_prompts(self, task: str) -> int:
        return len(DEPTHS) * int(self.setting("trials"))

    def num_groups(self, task: str) -> int:
        if self._has_one_text():
            return len(DEPTHS)
        return int(self.setting("trials")) if self.in_words else self.num_prompts(task)

    def prompt_tokens(self, task: str, eval_length: int) -> int:
        return max(1, eval_length - NEW_TOKENS)

    def distinct_share(self, task: str, prompt_tokens: float) -> float:
        if not self.in_words:
            return 1.0
        # Every prompt reuses the tokens of the deepest needle's prompt before its own needle.
        *shallower, _ = sorted(DEPTHS)
        return (1 + sum(1 - depth / 100 for depth in shallower)) / len(DEPTHS)

    def slack_tokens(self, request: CellRequest) -> int:
        return RESERVED_TOKENS

    def data_sequences(self, cell: CellData) -> Sequences | None:
        if not self._reads_essays():
            return None
        frame = round(len(_frame("", FACTS[0].question).encode()) / cell.base_model.bytes_per_token)
        expected = max(1, cell.eval_length - max(NEW_TOKENS, RESERVED_TOKENS - frame))
        return Sequences({expected: self.num_prompts(cell.task)})

    def reads(self, task: str) -> tuple[DataSet, ...]:
        return (ESSAYS,) if self._reads_essays() else ()

    def reads_held_out(self, task: str) -> bool:
        return not self._reads_essays()

    def key_prompts(self, request: CellRequest, task: KeyTask) -> list[Prompt]:
        grid = [(depth, trial) for depth in DEPTHS for trial in range(self.setting("trials"))]
        draws = [self._draw(request, depth, trial) for depth, trial in grid]
        return task.prompts(request, [depth for depth, _ in grid], draws)

    def build(self, request: CellRequest) -> list[Prompt]:
        trials, one_text = range(self.setting("trials")), self._has_one_text()
        # A trial uses one haystack for all depths, so that only the depth differs.
        haystacks = self._haystacks(request, [self._draw(request, trial) for trial in trials])
        leak, facts = bool(self.setting("bos_leak")), FACTS[: self.setting("needles")]
        if self.bos_leak and not encode(request, ""):
            raise UnavailableError(
                "bos_leak",
                "a tokenizer that puts no beginning-of-sequence token before a text",
                "a tokenizer with such a token, which bos_leak keeps inside the prompt",
                "set bos_leak: false",
            )
        return [
            replace(
                needle_prompt(
                    request, facts[trial % len(facts)], haystacks[trial], depth, bos_leak=leak
                ),
                cluster=f"depth-{depth}" if one_text else f"seed-{request.seed}-trial-{trial}",
            )
            for depth in DEPTHS
            for trial in trials
        ]

    def _draw(self, request: CellRequest, *place: int) -> np.random.Generator:
        return generator("needle", WORDINGS[0], request.cell_length, request.seed, *place)

    def _reads_essays(self) -> bool:
        return self.in_words and self.haystack != "held_out"

    def _has_one_text(self) -> bool:
        return self.profile == "faithful" and self._reads_essays()

    def _haystacks(self, request: CellRequest, draws: list[np.random.Generator]) -> list[list[int]]:
        length = request.eval_length
        if not self._reads_essays():
            streams = long_streams(request, length)
            return [random_slice(streams, length, rng).tolist() for rng in draws]
        tokens = essay_tokens(request)
        if self._has_one_text():
            return [tokens] * len(draws)
        starts = [int(rng.integers(len(tokens))) for rng in draws]
        return [tokens[start:] + tokens[:start] for start in starts]

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        return _scores_of(prompt.reference, answer)[self._own_metric()]

    def scores(self, samples: Sequence[Sample]) -> tuple[Score, ...]:
        if not self.in_words:
            return super().scores(samples)
        each = [_scores_of(str(one.reference), str(one.prediction)) for one in samples]
        clusters = [one.cluster for one in samples]
        metrics = {name: mean_estimate([one[name] for one in each], clusters) for name in each[0]}
        shown = {"accuracy": metrics[self._own_metric()], **metrics}
        return tuple(score(name, value, higher_is_better=True) for name, value in shown.items())

    def _own_metric(self) -> str:
        return "word_overlap" if self.profile == "faithful" else "exact_match"


def needle_rouge(reference: str, answer: str) -> float:
    return rouge_1(answer, _FACT_OF[reference].needle)


def _scores_of(reference: str, answer: str) -> dict[str, float]:
    return {
        "word_overlap": word_overlap(answer, reference),
        "rouge_1": needle_rouge(reference, answer),
        "exact_match": contains(answer, _FACT_OF[reference].phrase),
    }


def needle_prompt(
    request: CellRequest, fact: Fact, haystack: list[int], depth: int, *, bos_leak: bool
) -> Prompt:
    """Build a prompt with the needle at `depth` per cent of the longest haystack that fits.

    `bos_leak` tokenises haystack and needle with the tokenizer's beginning-of-sequence token (BOS),
    and keeps that token in the decoded context, as LCEG's script does.
    """
    needle = encode(request, fact.needle, special_tokens=bos_leak)
    if bos_leak:
        haystack = _leaking(request, haystack)
    num_tokens = max(0, request.eval_length - RESERVED_TOKENS - len(needle))
    wording = WORDINGS.index(request.task)
    for _ in range(_ROUNDS):
        context = _with_needle(request, needle, haystack[:num_tokens], depth)
        text = request.tokenizer.decode(context, skip_special_tokens=not bos_leak)
        prompt = _frame(str(text), fact.question, wording)
        ids = encode(request, prompt, names=bos_leak)
        excess = len(ids) + NEW_TOKENS - request.eval_length
        if excess <= 0:
            shown = (_frame(some, fact.question, wording) for some in ("", fact.needle))
            return Prompt(
                np.array(ids, dtype=np.int64),
                fact.answer,
                float(depth),
                controls=encoded(request, *shown),
            )
        if num_tokens == 0:
            break
        # Decoding and tokenising again can change the number of tokens slightly.
        num_tokens = max(0, num_tokens - excess)
    needed = len(ids) - num_tokens + NEW_TOKENS
    raise too_long(request, "the needle prompt (without haystack) and its answer", needed)


def essay_tokens(request: CellRequest) -> list[int]:
    """Return the token ids of the essays, repeated until they reach the length."""
    text = essays(request.data_folders)
    ids = encode(request, text, special_tokens=False) if text.strip() else []
    if not ids:
        raise UnavailableError(
            "data set 'essays'", "no text", "the text of the essays", "get its files again"
        )
    return ids * -(-request.eval_length // len(ids))


def _leaking(request: CellRequest, haystack: list[int]) -> list[int]:
    """Cut the haystack to the length, decode it and tokenise it again, as LCEG's script does.

    Both steps put a BOS token before it, so that the result starts with two.
    """
    begin, special = encode(request, ""), {*request.tokenizer.all_special_ids}
    # LCEG's text has no special tokens between documents.
    plain = [token for token in haystack if token not in special]
    cut = begin + plain[: request.eval_length - len(begin)]
    return encode(request, str(request.tokenizer.decode(cut)), names=True)


def _with_needle(
    request: CellRequest, needle: list[int], haystack: list[int], depth: int
) -> list[int]:
    """Insert the needle after the last full stop before `depth` per cent, or at the end."""
    place = len(haystack)
    if depth < 100:
        place = len(haystack) * depth // 100
        stops = ("a.", "a .")
        periods = {encode(request, text, special_tokens=False)[-1] for text in stops}
        while place > 0 and haystack[place - 1] not in periods:
            place -= 1
    return haystack[:place] + needle + haystack[place:]


def _frame(context: str, question: str, wording: int = 0) -> str:
    return (
        f"<|im_start|> This is a very long story book: <book> {context} </book>.\n"
        f" Based on the content of the book, Question: {question}\nAnswer:",
        f"Read the text and answer the question after it.\n\n{context}\n\n"
        f"Question: {question}\nAnswer:",
        f"Text:\n{context}\n\nQ: {question} Answer in one sentence.\nA:",
    )[wording]


BENCHMARK = Needle
SOURCE = Source(
    paper="arXiv:2409.12181",
    place="Figures 1 and 5, Table 1 (Needle)",
    reference="github.com/Leooyii/LCEG@2ce672dc42b9b5d3e408e8117126c28caeaafcc0",
    differs="essays are joined in the order of their names instead of the file system's; the length"
    " always includes the answer's tokens",
)
EVIDENCE = (
    *(
        calls(
            Needle.score_answer,
            score,
            origin,
            **marking("single", FACTS[0].answer, answer, profile=profile),
        )
        for profile, answer, score, origin in (
            (
                "faithful",
                "eat a sandwich and sit in Dolores Park on a sunny day.",
                11 / 12,
                "maximum of LCEG's figure: 12 words, 11 distinct",
            ),
            ("faithful", "Paris", 0.0, "no word in common"),
            ("clean", " Eat a sandwich and sit\nin Dolores Park.", 1.0, "the phrase is there"),
            ("clean", "Paris", 0.0, "the phrase is missing"),
        )
    ),
    calls(
        needle_rouge,
        8 / 11,
        "12 words of the needle's 21 in an answer of 12: 2 x 12 / 33, counted by hand",
        reference="eat a sandwich and sit in Dolores Park on a sunny day.",
        answer="Eating a sandwich and sitting in Dolores Park on a sunny day",
    ),
)
EXAMPLES: Examples = ({"trials": 2}, {"trials": 2, "haystack": "held_out"})
VERSION = 4
