"""Build prompts and generate answers: functions that benchmarks with prompts share.

Random draws depend only on the benchmark's name, the task, the length, the seed and the index of
the prompt in its cell, so all extension methods answer the same prompts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lce_core.benchmarks._base import CellRequest, Sample
from lce_core.errors import UnavailableError
from lce_core.models import KeyVocabulary, LanguageModel
from lce_core.store.identity import fingerprint

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

TokenIds = NDArray[np.int64]
Stream = NDArray[np.uint32]
Complete = Callable[[str], bool]

MIN_TEXT = 16
"""Minimum tokens of text in a prompt with key tokens; with less, it would not test retrieval."""
END_CHARACTERS = 200
"""Length of `Sample.prompt_end`."""


@dataclass(frozen=True, eq=False)
class Prompt:
    """A prompt as token ids, and its expected answer."""

    ids: TokenIds
    reference: str
    depth: float | None = None
    """Position of the answer's text in per cent of the context; None if it has no single position.
    Reports draw a grid of depths that are evenly spaced or all whole."""
    evidence: str = field(default="", kw_only=True)
    """Text at `depth` that contains the answer, if the answer has other places too, such as a list
    of labels. Empty: the text is `reference` itself."""

    @property
    def right_answers(self) -> tuple[str, ...]:
        return (self.reference,)


def prompts_sha256(prompts: Sequence[Prompt]) -> str:
    total = hashlib.sha256()
    for prompt in prompts:
        total.update(f"{len(prompt.ids)}\n".encode())
        total.update(prompt.ids.astype("<i8").tobytes())
    return total.hexdigest()


def blank_prompt(reference: str) -> Prompt:
    """Return a prompt without tokens, for entries of `EVIDENCE` that check only `score_answer`."""
    return Prompt(np.empty(0, dtype=np.int64), reference)


def decoded(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    """Return the text of token ids as the model saw it, including special tokens."""
    # Clean-up would remove spaces that the model saw.
    text = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return str(text)


def end_of(prompt: Prompt, tokenizer: PreTrainedTokenizerBase) -> str:
    # A token rarely has less than one character. The first one may be a part of a character.
    return decoded(tokenizer, prompt.ids[-END_CHARACTERS - 4 :].tolist())[-END_CHARACTERS:]


def generator(*place: str | int) -> np.random.Generator:
    """Return a random generator seeded by a hash of all arguments, such as task and seed."""
    return np.random.default_rng(int(fingerprint(list(place)), 16))


def passed_share(num_questions: int, question_tokens: float, prompt_tokens: float) -> float:
    """Return which fraction (0..1) of prompt tokens passes through the model, for costs.

    A context passes once for all its questions, each of which adds `question_tokens`.
    `prompt_tokens` is the mean length of a context and one question.
    """
    once = prompt_tokens + (num_questions - 1) * min(prompt_tokens, question_tokens)
    return once / (num_questions * prompt_tokens)


def long_streams(request: CellRequest, num_tokens: int) -> list[Stream]:
    """Return the streams of at least `num_tokens` tokens, or raise UnavailableError."""
    streams = [request.held_out.stream(domain) for domain in request.held_out.domains]
    long_enough = [stream for stream in streams if len(stream) >= num_tokens]
    if not long_enough:
        longest = max((len(stream) for stream in streams), default=0)
        raise UnavailableError(
            "held-out text",
            f"{longest} tokens in the longest domain",
            f"at least {num_tokens} tokens, the text of one prompt",
            "raise evaluation.held_out_tokens or give the corpus more text",
        )
    return long_enough


def random_slice(streams: list[Stream], num_tokens: int, rng: np.random.Generator) -> Stream:
    """Choose a random stream, and return `num_tokens` successive tokens from a random position."""
    stream = streams[rng.integers(len(streams))]
    start = int(rng.integers(len(stream) - num_tokens + 1))
    return stream[start : start + num_tokens]


def key_task_reason(
    base_model: LanguageModel,
    num_distractors: int,
    eval_length: int,
    frame: tuple[str, str] = ("", ""),
) -> str | None:
    """Return why a prompt with 1 + num_distractors key tokens cannot be built; None if it can.

    `frame`, the text before each key token and the query token, has at most a token per character.
    """
    keys = base_model.keys
    if keys is None:
        return f"profile tiny needs a base model with key tokens; {base_model.plugin_name} has none"
    if keys.families <= num_distractors:
        return (
            f"a prompt needs keys of {num_distractors + 1} families; base model"
            f" {base_model.plugin_name} has {keys.families}"
        )
    words = (num_distractors + 1) * len(frame[0]) + len(frame[1])
    minimum = MIN_TEXT + num_distractors + 3 + words
    if eval_length < minimum:
        return (
            f"eval_length {eval_length}: the task needs at least {minimum} tokens"
            f" ({num_distractors + 1} keys, query, answer and {MIN_TEXT + words} tokens of text)"
        )
    return None


def key_text_tokens(
    eval_length: int, num_distractors: int, before_key: int, before_query: int
) -> int:
    """Return the number of text tokens in a prompt with key tokens and one for the answer."""
    num_keys = num_distractors + 1
    return eval_length - num_keys * (before_key + 1) - (before_query + 1) - 1


def key_prompts(
    request: CellRequest,
    num_distractors: int,
    depths: Sequence[float],
    draws: Sequence[np.random.Generator],
    streams: list[Stream] | None = None,
    frame: tuple[str, str] = ("", ""),
) -> list[Prompt]:
    """Build one prompt for each of `depths`: text with inserted key tokens, then one query token.

    A prompt has eval_length - 1 tokens. `depths` are in per cent of the text; the other keys, of
    other families, are at random positions. Texts are cut from `streams`, or from all domains that
    are long enough. `frame` is the text before each key token and before the query token.
    """
    keys = request.base_model.keys
    assert keys is not None, "unavailable() refuses base models without keys"
    before_key, before_query = (encode(request, part, special_tokens=False) for part in frame)
    num_tokens = key_text_tokens(
        request.eval_length, num_distractors, len(before_key), len(before_query)
    )
    if streams is None:
        streams = long_streams(request, num_tokens)
    prompts = []
    for depth, rng in zip(depths, draws, strict=True):
        text = random_slice(streams, num_tokens, rng).astype(np.int64)
        families = rng.choice(keys.families, size=num_distractors + 1, replace=False)
        ids = key_ids(keys, families, rng.integers(keys.members, size=len(families)))
        places = rng.integers(num_tokens + 1, size=len(families))
        places[0] = round(depth / 100 * num_tokens)
        hidden = np.concatenate([[*before_key, key] for key in ids])
        filled = np.insert(text, np.repeat(places, len(before_key) + 1), hidden)
        prompt_ids = np.concatenate([filled, before_query, [keys.first_query + families[0]]])
        prompt_ids = prompt_ids.astype(np.int64)
        prompts.append(Prompt(prompt_ids, token_name(request, int(ids[0])), depth))
    return prompts


def key_samples(request: CellRequest, prompts: Sequence[Prompt]) -> tuple[Sample, ...]:
    from lce_core.evaluation.decoding import generate

    answers = generate(
        request.model,
        np.stack([prompt.ids for prompt in prompts]),
        max_new_tokens=1,
        batch_tokens=request.batch_tokens,
        report=request.report,
    )
    return tuple(
        key_sample(request, index, prompt, int(answer[0]))
        for index, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
    )


def key_sample(request: CellRequest, index: int, prompt: Prompt, answer: int) -> Sample:
    prediction = token_name(request, answer)
    right = float(prediction == prompt.reference)
    return Sample(index, len(prompt.ids), right, prompt.depth, prediction, prompt.reference)


def text_answers(
    request: CellRequest,
    prompts: Sequence[Prompt],
    *,
    max_new_tokens: int,
    complete: Complete | Sequence[Complete] = lambda _: False,
) -> list[str]:
    """Generate an answer of at most `max_new_tokens` tokens to each prompt; return it as text.

    `complete`, one function for all prompts or one for each, receives the answer generated so far,
    and returns True to stop because more text cannot change the score; ignored without `savings`.
    """
    from lce_core.evaluation.decoding import generate
    from lce_core.evaluation.greedy import Stop

    def text_of(ids: TokenIds) -> str:
        return str(request.tokenizer.decode(ids.tolist(), skip_special_tokens=True))

    def stop(rule: Complete) -> Stop:
        return lambda ids: rule(text_of(ids))

    rules = [complete] * len(prompts) if callable(complete) else complete
    answers = generate(
        request.model,
        [prompt.ids for prompt in prompts],
        max_new_tokens=max_new_tokens,
        stop=[stop(rule) for rule in rules] if request.savings else None,
        batch_tokens=request.batch_tokens,
        share_prefixes=request.savings,
        report=request.report,
    )
    return [text_of(answer) for answer in answers]


def encode(
    request: CellRequest, text: str, *, special_tokens: bool = True, names: bool = False
) -> list[int]:
    """Return a text's token ids, by default with special tokens such as that of its beginning.

    An end-of-text token is never added, because the model has to continue the text. With `names`
    the name of a special token, such as "</s>", becomes this token; otherwise it counts as plain
    characters, as in training text.
    """
    tokenizer = request.tokenizer
    ids: list[int] = tokenizer.encode(
        text, add_special_tokens=special_tokens, split_special_tokens=not names
    )
    end = tokenizer.eos_token_id
    if special_tokens and end is not None and ids and ids[-1] == end and _appends_end(tokenizer):
        del ids[-1]
    return ids


def _appends_end(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return True if the tokenizer puts its end-of-text token after every text."""
    # Not the empty text: its last token may be a beginning-of-text token with the same id.
    return bool(tokenizer.encode("a")[-1] == tokenizer.eos_token_id)


def token_name(request: CellRequest, token: int) -> str:
    """Return the tokenizer's string for a token id, or "<id>" for ids beyond its vocabulary."""
    # The model's vocabulary may be padded beyond the tokenizer's.
    name = request.tokenizer.convert_ids_to_tokens(token)
    return str(name) if name else f"<{token}>"


def key_ids(
    keys: KeyVocabulary, families: NDArray[np.int64], members: NDArray[np.int64]
) -> NDArray[np.int64]:
    return keys.first_key + families * keys.members + members
