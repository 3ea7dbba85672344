"""Needles in a haystack: niah_single_1..3, niah_multikey_1..3, niah_multivalue, niah_multiquery."""

import re
from dataclasses import dataclass
from random import Random
from typing import Literal

import numpy as np

from lce_core.benchmarks import CellRequest, essays
from lce_core.benchmarks.ruler._drafts import NOISE, Draft, Draw, Units, percent
from lce_core.benchmarks.ruler._vocabulary import draw_item
from lce_core.errors import UnavailableError

NEEDLE = "One of the special magic {values} for {key} is: {value}."
ONE = (
    "A special magic {values} is hidden within the following text. Make sure to memorize it. I will"
    " quiz you about the {values} afterwards.\n{context}\nWhat is the special magic {values} for"
    " {query} mentioned in the provided text? The special magic {values} for {query} mentioned in"
    " the provided text is"
)
SEVERAL = (
    "Some special magic {values} are hidden within the following text. Make sure to memorize it. I"
    " will quiz you about the {values} afterwards.\n{context}\nWhat are all the special magic"
    " {values} for {query} mentioned in the provided text? The special magic {values} for {query}"
    " mentioned in the provided text are"
)
DEPTHS: list[int] = np.round(np.linspace(0, 100, 40)).astype(int).tolist()
"""RULER's 40 positions of needles in running text, in per cent of its sentences."""
SHORT_LENGTH = 4096
"""RULER's first release adds 5 lines at a time at lengths below 4,096 tokens, else 25."""
_BREAK = re.compile(r"(?<=[.!?])[\"'\u201d\u2019)\]]* (?=[\"'\u201c\u2018(\[]*[A-Z0-9])")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'\u201c])"
    r"(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|cf|No|[ei]\.[eg]|[ap]\.m|[AP]\.M|U\.S)\.$"
)
_ABBREVIATION_WINDOW = 9
"""Characters before a possible sentence end in which an abbreviation is searched."""


class Haystack:
    """A text, repeated without limit. Runs of white space count as one space."""

    def __init__(self, text: str, source: str) -> None:
        self._words = text.split()
        self.num_words = len(self._words)
        """Number of words before the text repeats."""
        if not self._words:
            raise UnavailableError(
                source, "no text", "text to hide needles in", "get its files again"
            )

    def sentences(self, num_words: int) -> list[str]:
        """Return the first `num_words` words as sentences; the last sentence may be incomplete."""
        repeats, rest = divmod(num_words, self.num_words)
        return split_sentences(" ".join(self._words * repeats + self._words[:rest]))


def essay_haystack(request: CellRequest) -> Haystack:
    return Haystack(essays(request.data_folders), "data set 'essays'")


def held_out_haystack(request: CellRequest) -> Haystack:
    """Return a haystack of the first 2 * eval_length tokens of each held-out domain."""
    streams = [request.held_out.stream(domain) for domain in request.held_out.domains]
    texts = (
        request.tokenizer.decode(
            stream[: 2 * request.eval_length].tolist(), skip_special_tokens=True
        )
        for stream in streams
    )
    return Haystack(" ".join(str(text) for text in texts), "held-out text")


def split_sentences(text: str) -> list[str]:
    """Split a text, whose words must be separated by single spaces, into sentences.

    Replaces nltk's punkt, which needs a download: splits at spaces after a full stop, question mark
    or exclamation mark (and closing quotes) if the following text could start a sentence, except
    after initials and common abbreviations.
    """
    sentences, start = [], 0
    for found in _BREAK.finditer(text):
        end = found.start()
        if _ABBREVIATION.search(text[max(0, end - _ABBREVIATION_WINDOW) : end]):
            continue
        sentences.append(text[start : found.end() - 1])
        start = found.end()
    return [*sentences, text[start:]]


@dataclass(frozen=True)
class Needles:
    """Haystack of a task, and type and number of its keys, values and queries."""

    haystack: Literal["noise", "text", "needles"]
    keys: str = "words"
    values: str = "numbers"
    num_keys: int = 1
    num_values: int = 1
    num_queries: int = 1


NIAH = {
    "niah_single_1": Needles("noise"),
    "niah_single_2": Needles("text"),
    "niah_single_3": Needles("text", values="uuids"),
    "niah_multikey_1": Needles("text", num_keys=4),
    "niah_multikey_2": Needles("needles"),
    "niah_multikey_3": Needles("needles", keys="uuids", values="uuids"),
    "niah_multivalue": Needles("text", num_values=4),
    "niah_multiquery": Needles("text", num_keys=4, num_queries=4),
}


class Niah:
    """One of the eight tasks; the size of a prompt is its number of words or lines of haystack.

    `v1` has extra spaces and keys that may repeat. `haystack` is running text; None for lines.
    """

    new_tokens = 128

    def __init__(
        self, needles: Needles, eval_length: int, *, v1: bool, haystack: Haystack | None
    ) -> None:
        self._needles, self._v1, self._text = needles, v1, haystack
        self.sizes = range(1, eval_length + 1)
        step, most = 5 if eval_length < SHORT_LENGTH else 25, None
        if haystack is not None:
            step, most = 500, haystack.num_words
        self.units = Units(step, step, self.new_tokens, "redrawn smaller", most)

    def draft(self, size: int, index: int, draw: Draw) -> Draft:
        needles, taken = self._needles, set[str]()
        keys, values, facts = [], [], []
        for _ in range(needles.num_keys):
            keys.append(self._item(needles.keys, draw.rng, taken))
            values.append([draw_item(needles.values, draw.rng) for _ in range(needles.num_values)])
            facts += [self._needle(keys[-1], value) for value in values[-1]]
        hidden = facts.copy()
        draw.shuffle(hidden)
        if self._text is None:
            lines = self._lines(size, draw.rng, taken)
            context, depths = among_lines(lines, hidden, draw.rng)
        else:
            sentences = self._text.sentences(size)
            context, depths = among_sentences(sentences, hidden, draw.rng, blanks=self._v1)
        queried = draw.rng.sample(range(needles.num_keys), needles.num_queries)
        wanted = [value for key in queried for value in values[key]]
        shown = [self._needle(keys[key], value) for key in queried for value in values[key]]
        at = [depth for depth, fact in zip(depths, hidden, strict=True) if fact in shown]
        text, *controls = (
            _prompt(needles.values, [keys[key] for key in queried], len(wanted), one)
            for one in (context, "", "\n".join(shown))
        )
        depth, stated = float(np.mean(at)), " ".join(wanted)
        return Draft(text, tuple(wanted), depth, stated=stated, controls=controls)

    def _lines(self, size: int, rng: Random, taken: set[str]) -> list[str]:
        needles = self._needles
        if needles.haystack == "noise":
            return [NOISE] * size
        return [
            self._needle(self._item(needles.keys, rng, taken), draw_item(needles.values, rng))
            for _ in range(size)
        ]

    def _item(self, kind: str, rng: Random, taken: set[str]) -> str:
        """Draw a key and add it to `taken`; unless v1, draw until it is not yet in `taken`."""
        item = draw_item(kind, rng)
        while item in taken and not self._v1:
            item = draw_item(kind, rng)
        taken.add(item)
        return item

    def _needle(self, key: str, value: str) -> str:
        return NEEDLE.format(values=self._needles.values, key=key, value=value)


def _prompt(values: str, queries: list[str], num_references: int, context: str) -> str:
    query = queries[0]
    if len(queries) > 1:
        query = f"{', '.join(queries[:-1])}, and {queries[-1]}"
    if num_references == 1:
        return ONE.format(values=values.removesuffix("s"), context=context, query=query)
    return SEVERAL.format(values=values, context=context, query=query)


def among_lines(lines: list[str], facts: list[str], rng: Random) -> tuple[str, list[float]]:
    """Insert facts between lines, the first fact deepest; return (text, depth of each fact)."""
    places = sorted(rng.sample(range(len(lines)), len(facts)), reverse=True)
    found = lines.copy()
    for place, fact in zip(places, facts, strict=True):
        found.insert(place, fact)
    return "\n".join(found), [percent(place, len(lines)) for place in places]


def among_sentences(
    sentences: list[str], facts: list[str], rng: Random, *, blanks: bool
) -> tuple[str, list[float]]:
    """Insert facts between sentences, the last fact deepest; return (text, depth of each fact).

    `blanks` keeps the additional space of RULER's first release, such as before a fact at depth 0.
    """
    depths = sorted(rng.sample(DEPTHS, len(facts)))
    parts, start = [], 0
    for depth, fact in zip(depths, facts, strict=True):
        # Reproduces RULER's rounding; len * depth / 100 rounds differently.
        place = int(len(sentences) * (depth / 100))
        parts += [" ".join(sentences[start:place]), fact]
        start = place
    parts.append(" ".join(sentences[start:]))
    return " ".join(part for part in parts if part or blanks), [float(depth) for depth in depths]
