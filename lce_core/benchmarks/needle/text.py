"""LCEG's needle prompt: a sentence hidden in essays or held-out text, and a question about it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lce_core.benchmarks import (
    WORDINGS,
    CellRequest,
    Prompt,
    encode,
    encoded,
    essays,
    long_streams,
    random_slice,
    too_long,
)
from lce_core.errors import UnavailableError
from lce_core.models import LanguageModel


@dataclass(frozen=True)
class Fact:
    """A needle: a sentence to hide, the question about it, and the expected answer."""

    city: str
    phrase: str
    tail: str

    @property
    def answer(self) -> str:
        """The end of the hidden sentence, after "is"."""
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


def needle_prompt(
    request: CellRequest, fact: Fact, haystack: list[int], depth: int, *, bos_leak: bool
) -> Prompt:
    """Build a prompt with the longest haystack that fits, and the needle inside it.

    `haystack` has at least as many token ids as the cell's length; `depth` is in per cent of it.
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


def require_leak(request: CellRequest) -> None:
    """Raise UnavailableError if the tokenizer adds no BOS token that could leak into a prompt."""
    if not encode(request, ""):
        raise UnavailableError(
            "bos_leak",
            "a tokenizer that puts no beginning-of-sequence token before a text",
            "a tokenizer with such a token, which bos_leak keeps inside the prompt",
            "set bos_leak: false",
        )


def expected_tokens(base_model: LanguageModel, eval_length: int) -> int:
    frame = round(len(_frame("", FACTS[0].question).encode()) / base_model.bytes_per_token)
    return max(1, eval_length - max(NEW_TOKENS, RESERVED_TOKENS - frame))


def essay_tokens(request: CellRequest) -> list[int]:
    """Return the token ids of the essays, repeated until they reach the length."""
    text = essays(request.data_folders)
    ids = encode(request, text, special_tokens=False) if text.strip() else []
    if not ids:
        raise UnavailableError(
            "data set 'essays'", "no text", "the text of the essays", "get its files again"
        )
    return ids * -(-request.eval_length // len(ids))


def held_out_tokens(request: CellRequest, draws: list[np.random.Generator]) -> list[list[int]]:
    """Return one excerpt of `eval_length` held-out tokens per generator."""
    streams = long_streams(request, request.eval_length)
    return [random_slice(streams, request.eval_length, rng).tolist() for rng in draws]


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
        periods = _period_ids(request)
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


def _period_ids(request: CellRequest) -> set[int]:
    return {encode(request, text, special_tokens=False)[-1] for text in ("a.", "a .")}
