"""Prompts for toy models, which cannot copy words: the model retrieves one token from a text.

The vocabulary of such a model has families of key tokens and one query token per family. A prompt
is text with one inserted key token of each of several families, followed by the query token of one
of these families. The right answer is the inserted key token of this family.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lce_core.benchmarks._base import CellRequest, Sample
from lce_core.benchmarks._prompted.retrieval import (
    Prompt,
    encode,
    long_streams,
    random_slice,
    token_ids,
)
from lce_core.models import KeyVocabulary, LanguageModel

MIN_TEXT = 16
"""Minimum tokens of text in a prompt with key tokens; with less, it would not test retrieval."""


@dataclass(frozen=True)
class KeyTask:
    """The key tokens that a prompt hides, and the text around them."""

    num_distractors: int | None = 0
    """Number of key tokens in the text besides the one that a sample's first query asks for. None:
    one of every other family."""
    num_queries: int = 1
    """Number of keys that a sample asks for, each with a separate prompt."""
    line: str = ""
    """Line that the text repeats; empty: the text is held-out text."""
    frame: tuple[str, str] = ("", "")
    """Text before each key token and before the query token."""

    def unavailable(self, base_model: LanguageModel, eval_length: int) -> str | None:
        """Return why a prompt cannot be built; None if it can."""
        keys, num_keys = base_model.keys, self._num_keys(base_model)
        if keys is None:
            return without_keys(base_model)
        if keys.families < num_keys:
            return (
                f"a prompt needs keys of {num_keys} families; base model"
                f" {base_model.plugin_name} has {keys.families}"
            )
        # The text of `frame` has at most a token per character.
        words = num_keys * len(self.frame[0]) + len(self.frame[1])
        minimum = MIN_TEXT + num_keys + 2 + words
        if eval_length < minimum:
            return (
                f"eval_length {eval_length}: the task needs at least {minimum} tokens"
                f" ({num_keys} keys, query, answer and {MIN_TEXT + words} tokens of text)"
            )
        return None

    def excerpt_tokens(self, base_model: LanguageModel, eval_length: int) -> int:
        return 0 if self.line else self._text_tokens(base_model, eval_length, *map(len, self.frame))

    def prompts(
        self, request: CellRequest, depths: Sequence[float], draws: Sequence[np.random.Generator]
    ) -> list[Prompt]:
        """Build the prompts of one sample for each of `depths`, in per cent of the text.

        A prompt has eval_length - 1 tokens. The other keys, of other families, are at random
        positions. The prompts of a sample differ only in their query token.
        """
        keys, num_keys = keys_of(request), self._num_keys(request.base_model)
        before_key, before_query = (token_ids(request, part) for part in self.frame)
        num_tokens = self._text_tokens(
            request.base_model, request.eval_length, len(before_key), len(before_query)
        )
        if self.line:
            line = encode(request, f"{self.line}\n", special_tokens=False)
            repeats = 1 + 2 * request.eval_length // len(line)
            streams = [np.array(line * repeats, dtype=np.uint32)]
        else:
            streams = long_streams(request, num_tokens)
        prompts = []
        for depth, rng in zip(depths, draws, strict=True):
            text = random_slice(streams, num_tokens, rng).astype(np.int64)
            families = rng.choice(keys.families, size=num_keys, replace=False)
            ids = keys.ids(families, rng.integers(keys.members, size=num_keys))
            places = rng.integers(num_tokens + 1, size=num_keys)
            places[0] = round(depth / 100 * num_tokens)
            hidden = np.concatenate([[*before_key, key] for key in ids])
            filled = np.insert(text, np.repeat(places, len(before_key) + 1), hidden)
            prompt_ids = np.concatenate([filled, before_query, [keys.first_query + families[0]]])
            prompt_ids = prompt_ids.astype(np.int64)
            asked = [Prompt(prompt_ids, token_name(request, int(ids[0])), depth)]
            if self.num_queries > 1:
                asked += _other_queries(request, asked[0])
            for one in asked:
                bare = (*before_query.tolist(), int(one.ids[-1]))
                key = np.atleast_1d(request.tokenizer.convert_tokens_to_ids(one.reference))
                local = (*before_key.tolist(), *key.tolist(), *bare)
                prompts.append(replace(one, controls=(bare, local)))
        return prompts

    def _num_keys(self, base_model: LanguageModel) -> int:
        if self.num_distractors is None:
            return base_model.keys.families if base_model.keys else 1
        return 1 + self.num_distractors

    def _text_tokens(
        self, base_model: LanguageModel, eval_length: int, before_key: int, before_query: int
    ) -> int:
        return eval_length - self._num_keys(base_model) * (before_key + 1) - (before_query + 1) - 1


def _other_queries(request: CellRequest, prompt: Prompt) -> list[Prompt]:
    keys = keys_of(request)
    body, first_query = prompt.ids[:-1], prompt.ids[-1]
    found: list[Prompt] = []
    for place in np.flatnonzero((body >= keys.first_key) & (body < keys.first_query)):
        query = keys.first_query + (body[place] - keys.first_key) // keys.members
        if query != first_query:
            name, depth = token_name(request, int(body[place])), 100 * float(place) / len(body)
            found.append(Prompt(np.append(body, query), name, depth))
    return found


def joined(samples: Sequence[Sample], num_queries: int) -> tuple[Sample, ...]:
    """Join the scored queries of each sample; its score is the fraction of right keys."""
    if num_queries == 1:
        return tuple(samples)
    groups = [samples[at : at + num_queries] for at in range(0, len(samples), num_queries)]
    return tuple(
        replace(
            group[0],
            sample=number,
            score=float(np.mean([sample.score for sample in group])),
            depth=float(np.mean([sample.depth for sample in group])),
            prediction=" | ".join(str(sample.prediction) for sample in group),
            reference=" | ".join(str(sample.reference) for sample in group),
        )
        for number, group in enumerate(groups)
    )


def token_name(request: CellRequest, token: int) -> str:
    """Return the tokenizer's string for a token id, or "<id>" for ids beyond its vocabulary."""
    # The model's vocabulary may be padded beyond the tokenizer's.
    name = request.tokenizer.convert_ids_to_tokens(token)
    return str(name) if name else f"<{token}>"


def keys_of(request: CellRequest) -> KeyVocabulary:
    keys = request.base_model.keys
    assert keys is not None, "unavailable() refuses base models without keys"
    return keys


def without_keys(base_model: LanguageModel) -> str:
    return f"profile tiny needs a base model with key tokens; {base_model.plugin_name} has none"
