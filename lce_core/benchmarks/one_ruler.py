"""ONERULER in English: needles that may be absent, and prompts that allow the answer "none".

A needle states a seven-digit number for a word. In the tasks `niah_single`, `niah_multikey`,
`niah_multivalue` and `niah_multiquery` the text holds the asked numbers. In `niah_none` it holds
four needles, and the question, which reads the same in all tasks, names another word. So
`niah_none` shows whether a method invents a number, and the others whether it finds one.

`accuracy` is ONERULER's score: an answer is right if it holds all asked numbers, no other number of
two or more digits and no "none"; in `niah_none`, if it holds "none". `choice` and `margin` compare
the likelihoods of the right numbers and of others that the text does not hold; in `niah_none` those
of "none" and of a number of the text. "none" is shorter than a number and therefore likelier in
most models, so only differences between methods have a meaning there.

The prompt begins the answer, "<Answer>", because a base model does not follow the instruction to
write this mark.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

import numpy as np

from lce_core.benchmarks import (
    CellRequest,
    DataSet,
    Examples,
    Profile,
    Prompt,
    Sample,
    Sampled,
    Score,
    Source,
    Stream,
    calls,
    encoded,
    long_streams,
    random_slice,
    read_text,
    score,
)
from lce_core.benchmarks.ruler._niah import Haystack, among_sentences
from lce_core.benchmarks.ruler._vocabulary import draw_item, word_list
from lce_core.evaluation.metrics import integer
from lce_core.statistics.estimates import mean_estimate

NEEDLE = 'The special magic number for "{key}" is: {value}.'
PROMPT = (
    "Please read and memorize the text below. I will ask you about it later.\n\n<text>\n{context}\n"
    "</text>\n\n<Question> What special magic numbers associated with {queries} are mentioned in"
    ' the provided text? Please list all that apply. If no such numbers exist, please answer "none"'
    ".</Question>\n\n\nPlease provide your answer in the following format:\n <Answer> List all"
    " numbers here </Answer>\n<Answer>"
)
"""The reference's prompt, followed by the beginning of the answer."""
END = "</Answer>"
NONE = "none"
NUM_ABSENT = 3
"""Number of wrong answers with which `choice` and `margin` compare the right numbers."""
BOOK = DataSet("one_ruler_book", ("*.txt",), "github.com/mungg/OneRuler (books/en)")


@dataclass(frozen=True)
class Needles:
    """Numbers of keys in the text, of values for each key, and of asked keys."""

    num_keys: int = 1
    num_values: int = 1
    num_queries: int = 1
    absent: bool = False
    """True asks for a word that is no key of the text."""


TASKS = {
    "niah_single": Needles(),
    "niah_multikey": Needles(num_keys=4),
    "niah_multivalue": Needles(num_values=4),
    "niah_multiquery": Needles(num_keys=2, num_queries=2),
    "niah_none": Needles(num_keys=4, absent=True),
}


class OneRuler(Sampled):
    """Numbers found in a text, or correctly reported as absent: the fraction of right answers."""

    task_names = tuple(TASKS)
    profiles = {
        "clean": Profile("50 prompts per task", num_samples=50),
        "fast": Profile("10 prompts per task", num_samples=10),
    }
    answer_tokens = 64
    """More than the reference's 30: four numbers may take about 40."""
    data_on_demand = (BOOK,)

    haystack: Literal["held_out", "book"] = "held_out"
    """Text around the needles: random excerpts of held-out text, or the start of ONERULER's English
    book."""

    def reads(self, task: str) -> tuple[DataSet, ...]:
        return (BOOK,) if self.haystack == "book" else ()

    def reads_held_out(self, task: str) -> bool:
        return self.haystack == "held_out"

    def build(self, request: CellRequest) -> list[Prompt]:
        draws = self.draws(request)
        if self.haystack == "book":
            files = BOOK.files(request.data_folders)
            book = Haystack("".join(map(read_text, files)), "data set 'one_ruler_book'")
            return [self._hidden(request, book, rng) for rng in draws]
        streams = long_streams(request, request.eval_length)
        return [self._hidden(request, _excerpt(request, streams, rng), rng) for rng in draws]

    def slack_tokens(self, request: CellRequest) -> int:
        return 16  # prompts grow by whole words, and words of code can be long

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        answer = answer.partition(END)[0]
        return says_none(answer) if task == "niah_none" else exactly(answer, prompt.references)

    def complete(self, task: str, prompt: Prompt, answer: str) -> bool:
        return END in answer

    def scores(self, samples: Sequence[Sample]) -> tuple[Score, ...]:
        found = [says_none(str(one.prediction).partition(END)[0]) for one in samples]
        absent = all(one.reference == NONE for one in samples)
        return (
            *super().scores(samples),
            score("says_none", mean_estimate(found, [None] * len(found)), higher_is_better=absent),
        )

    def _hidden(self, request: CellRequest, haystack: Haystack, rng: np.random.Generator) -> Prompt:
        task, draw = TASKS[request.task], Random(int(rng.integers(2**62)))
        *keys, other = draw.sample(word_list("noun"), task.num_keys + 1)
        values = [[draw_item("numbers", draw) for _ in range(task.num_values)] for _ in keys]
        facts = {
            NEEDLE.format(key=key, value=value): value
            for key, own in zip(keys, values, strict=True)
            for value in own
        }
        needles = draw.sample(list(facts), len(facts))
        seed = draw.random()
        asked = [(other, [])] if task.absent else list(zip(keys, values, strict=True))
        asked = draw.sample(asked, task.num_queries)
        queries = [key for key, _ in asked]
        wanted = tuple(value for _, own in asked for value in own) or (NONE,)

        def hidden(num_words: int) -> tuple[str, list[float]]:
            sentences = haystack.sentences(num_words)
            return among_sentences(sentences, needles, Random(seed), blanks=False)

        _, depths = hidden(1)
        at = [depth for depth, fact in zip(depths, needles, strict=True) if facts[fact] in wanted]
        ids = self.filled(request, lambda count: prompt_text(hidden(count)[0], queries))
        reference = ", ".join(wanted)
        wrong = [values[0]] if task.absent else absent_numbers(wanted, draw)
        local = " ".join(needle for needle in needles if facts[needle] in wanted)
        shown = [""] if task.absent else ["", local]
        return Prompt(
            ids,
            reference,
            float(np.mean(at)) if at else None,
            labels=(reference, *map(", ".join, wrong)),
            # No two prompts share a text, so the question is only the last token.
            context_tokens=len(ids) - 1,
            references=wanted,
            controls=encoded(request, *(prompt_text(text, queries) for text in shown)),
        )


def _excerpt(request: CellRequest, streams: list[Stream], rng: np.random.Generator) -> Haystack:
    ids = random_slice(streams, request.eval_length, rng)
    text = request.tokenizer.decode(ids.tolist(), skip_special_tokens=True)
    return Haystack(str(text), "held-out text")


def absent_numbers(wanted: Sequence[str], rng: Random) -> list[list[str]]:
    """Draw `NUM_ABSENT` lists of as many numbers as `wanted` has, without any of these."""
    drawn = [draw_item("numbers", rng) for _ in range((NUM_ABSENT + 1) * len(wanted))]
    others = [number for number in drawn if number not in wanted]
    return [others[at * len(wanted) : (at + 1) * len(wanted)] for at in range(NUM_ABSENT)]


def prompt_text(context: str, queries: Sequence[str]) -> str:
    return PROMPT.format(context=context, queries=" and ".join(f'"{query}"' for query in queries))


def exactly(answer: str, references: Sequence[str]) -> float:
    """Return 1 if the numbers of an answer are exactly the references, else 0.

    Numbers of one digit do not count, equal numbers count once, and "none" makes an answer wrong.
    Source: compare_numbers in OneRuler/eval/evaluate.py of github.com/mungg/OneRuler@7df5ce7.
    """
    text = unicodedata.normalize("NFKC", answer)
    found = {digits for digits in re.findall(r"\d+", text) if len(digits) > 1}
    if NONE in text or not found or len(found) != len(references):
        return 0.0
    return float({integer(one) for one in found} == {int(one) for one in references})


def says_none(answer: str) -> float:
    """Return 1 if an answer contains "none", ignoring case and blanks, else 0.

    Source: compare_none in OneRuler/eval/evaluate.py of github.com/mungg/OneRuler@7df5ce7.
    """
    text = unicodedata.normalize("NFKC", answer).lower()
    return float(NONE in text.replace("\u200c", "").replace(" ", ""))


BENCHMARK = OneRuler
SOURCE = Source(
    paper="arXiv:2503.01996",
    place="section 2, English; needles, templates and scores of the tasks niah_*",
    reference="github.com/mungg/OneRuler@7df5ce7f48014b03226dac52e885fb9cfc52c139",
    differs="keys are nouns of RULER's list; the text is held-out text unless `haystack: book`, and"
    " each prompt fills the length together with its answer; the prompt begins the answer, and only"
    " text before </Answer> counts; another sentence splitter replaces stanza's; no blank precedes"
    " a needle at depth 0",
)
EVIDENCE = (
    calls(
        prompt_text,
        "Please read and memorize the text below. I will ask you about it later.\n\n<text>\nA."
        '\n</text>\n\n<Question> What special magic numbers associated with "sea" and "ink" are'
        " mentioned in the provided text? Please list all that apply. If no such numbers exist,"
        ' please answer "none".</Question>\n\n\nPlease provide your answer in the following format:'
        "\n <Answer> List all numbers here </Answer>\n<Answer>",
        "the English templates of the reference, joined as its niah.py joins them",
        context="A.",
        queries=["sea", "ink"],
    ),
    *(
        calls(exactly, value, origin, answer=answer, references=["1234567", "7654321"])
        for answer, value, origin in (
            (" 7654321, 1234567, 7654321", 1.0, "all numbers, in any order, one of them twice"),
            ("1. 1234567\n2. 7654321", 1.0, "numbers of one digit are ignored"),
            (" 1234567", 0.0, "a number is missing"),
            (" 1234567, 7654321, 10", 0.0, "a further number"),
            (" 1234567, 7654321 or none", 0.0, "compare_numbers refuses answers with none"),
        )
    ),
    *(
        calls(says_none, value, origin, answer=answer)
        for answer, value, origin in (
            (" None. ", 1.0, "case is ignored"),
            (" 1234567", 0.0, "a number"),
            ("\uff4eo ne 12", 1.0, "compare_none by hand: NFKC, blanks, numbers do not matter"),
        )
    ),
)
EXAMPLES: Examples = ({"num_samples": 3}, {"num_samples": 3, "haystack": "book"})
VERSION = 2
