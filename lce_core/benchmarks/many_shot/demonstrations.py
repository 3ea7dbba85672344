"""Draw the examples of many-shot prompts; build the prompts, in words or from key tokens."""

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
from lce_core.benchmarks.longbench._tasks import QUESTION_TYPE
from lce_core.benchmarks.many_shot.trec import Question


def drawn_order(
    labels: Sequence[Hashable], count: int, rng: np.random.Generator, *, balanced: bool
) -> list[int]:
    """Draw the indices of `count` examples; with equal seeds, fewer are a prefix of more.

    Args:
      labels: class of each example.
      count: number of examples to show.
      rng: determines the order.
      balanced: True draws rounds with one example of each class, shuffled within the round; a class
        with fewer examples than rounds repeats them. False draws a random permutation, so classes
        have their natural frequency.
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
    """Return LongBench's trec prompt: the examples, then the question `asked` without its type."""
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
    """Build classification prompts in tokens: text, the query of a family, and its key.

    Every family has one key for all prompts. `shots` such examples are spread over eval_length - 1
    tokens and shared by all prompts. Each prompt ends with its own text and the query of a random
    family. Only the examples tell which key belongs to a family.

    Args:
      request: provides length, held-out text and a base model with key tokens.
      shots: number of examples.
      questions: one generator per prompt.
      rng: generator for everything that the prompts share.
      balanced: as in `drawn_order`.

    Raises:
      UnavailableError: if there is too little held-out text.
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
