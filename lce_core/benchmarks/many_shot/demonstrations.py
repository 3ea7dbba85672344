"""Examples before a question: nested draws, as text, and as key tokens for toy models."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from lce_core.benchmarks import CellRequest
from lce_core.benchmarks._prompted.retrieval import (
    Prompt,
    key_ids,
    long_streams,
    random_slice,
    token_name,
)
from lce_core.benchmarks.longbench._few_shot import QUESTION_TYPE
from lce_core.benchmarks.many_shot.trec import Question


def drawn_order(
    labels: Sequence[Hashable], count: int, rng: np.random.Generator, *, balanced: bool
) -> list[int]:
    """Indexes of `count` examples; fewer are a beginning of more, given the same generator.

    Args:
      labels: class of each example.
      count: examples to show.
      rng: decides the order.
      balanced: in rounds with one example of each class, shuffled within the round; a class with
        fewer examples than rounds repeats them. Otherwise a random permutation, so that classes
        come as often as they are.
    """
    if not balanced:
        return [int(index) for index in rng.permutation(len(labels))[:count]]
    members: dict[Hashable, list[int]] = {}
    for index, label in enumerate(labels):
        members.setdefault(label, []).append(index)
    shuffled = [[int(one) for one in rng.permutation(group)] for group in members.values()]
    order: list[int] = []
    for turn in range(-(-count // len(shuffled))):
        order += [
            shuffled[one][turn % len(shuffled[one])] for one in rng.permutation(len(shuffled))
        ]
    return order[:count]


def prompt_text(examples: Sequence[Question], asked: str) -> str:
    """LongBench's trec prompt with these examples, up to the type of the asked question."""
    context = "\n".join(f"Question: {one.text}\nType: {one.label}" for one in examples)
    return QUESTION_TYPE.format(context=context, input=f"Question: {asked}\nType:")


def key_demonstrations(
    request: CellRequest,
    shots: int,
    questions: Sequence[np.random.Generator],
    rng: np.random.Generator,
    *,
    balanced: bool,
) -> list[Prompt]:
    """Classification in tokens: some text, the query of a family, and the key it stands for.

    Every family has one key for all prompts. `shots` such examples, spread over eval_length - 1
    tokens, are shared by all prompts; each ends with text of its own and the query of a random
    family. What a family stands for can be known from its examples only.

    Args:
      request: length, held-out text and base model with key tokens.
      shots: examples.
      questions: a generator for each prompt.
      rng: of what the prompts share.
      balanced: as in `drawn_order`.

    Raises:
      UnavailableError: too little held-out text.
    """
    keys = request.base_model.keys
    assert keys is not None, "unavailable() lets no base model without keys through"
    num_text = request.eval_length - 2 - 2 * shots
    streams = long_streams(request, num_text)
    text = np.array_split(random_slice(streams, num_text, rng).astype(np.int64), shots + 1)
    names = key_ids(keys, np.arange(keys.families), rng.integers(keys.members, size=keys.families))
    pool = np.repeat(np.arange(keys.families), shots)
    families = pool[drawn_order(pool.tolist(), shots, rng, balanced=balanced)]
    shown = [
        np.append(part, [keys.first_query + family, names[family]])
        for part, family in zip(text[:-1], families, strict=True)
    ]
    prompts = []
    for draw in questions:
        own, family = random_slice(streams, len(text[-1]), draw), draw.integers(keys.families)
        ids = np.concatenate([*shown, own.astype(np.int64), [keys.first_query + family]])
        prompts.append(Prompt(ids, token_name(request, int(names[family]))))
    return prompts
