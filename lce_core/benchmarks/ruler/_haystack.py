"""Essays or held-out text as a haystack: a text in whose sentences RULER hides needles.

The sentence splitter replaces nltk's punkt, which needs a download. It splits at spaces after a
full stop, question mark or exclamation mark (and closing quotes) if the following text could start
a sentence, except after initials and common abbreviations.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from lce_core.benchmarks import CellRequest, essays
from lce_core.errors import UnavailableError

_BREAK = re.compile(r"(?<=[.!?])[\"'\u201d\u2019)\]]* (?=[\"'\u201c\u2018(\[]*[A-Z0-9])")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'\u201c])"
    r"(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs|cf|No|[ei]\.[eg]|[ap]\.m|[AP]\.M|U\.S)\.$"
)
_ABBREVIATION_WINDOW = 9
"""Characters before a possible sentence end in which an abbreviation is searched."""


class Haystack:
    """A text, repeated without limit, that is split into sentences on demand.

    Runs of white space count as one space. Raises UnavailableError if the text is empty.
    """

    def __init__(self, text: str, source: str) -> None:
        self._words = text.split()
        if not self._words:
            raise UnavailableError(
                source, "no text", "text to hide needles in", "get its files again"
            )
        self._sentences: list[str] = []
        self._ends = [0]
        """Number of words up to the end of each known sentence, after an initial 0."""

    @property
    def num_words(self) -> int:
        """Number of words before the text repeats."""
        return len(self._words)

    def sentences(self, num_words: int) -> list[str]:
        """Return the first `num_words` words as sentences; the last sentence may be incomplete."""
        if num_words > self._ends[-1]:
            self._read_on(num_words)
        whole = bisect_right(self._ends, num_words) - 1
        found = self._sentences[:whole]
        if self._ends[whole] < num_words:
            words = self._sentences[whole].split(" ")
            found.append(" ".join(words[: num_words - self._ends[whole]]))
        return found

    def _read_on(self, num_words: int) -> None:
        # The last known sentence may be incomplete, so it is split again.
        if self._sentences:
            self._sentences.pop()
            self._ends.pop()
        start = self._ends[-1]
        words = (self._words[at % len(self._words)] for at in range(start, num_words))
        for sentence in split_sentences(" ".join(words)):
            self._sentences.append(sentence)
            self._ends.append(self._ends[-1] + sentence.count(" ") + 1)


def essay_haystack(request: CellRequest) -> Haystack:
    """Return a haystack of all essays, joined in the order of their file names."""
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
    """Split a text, whose words must be separated by single spaces, into sentences."""
    sentences, start = [], 0
    for found in _BREAK.finditer(text):
        end = found.start()
        if _ABBREVIATION.search(text[max(0, end - _ABBREVIATION_WINDOW) : end]):
            continue
        sentences.append(text[start : found.end() - 1])
        start = found.end()
    return [*sentences, text[start:]]
