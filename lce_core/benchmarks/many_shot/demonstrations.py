"""Draw the examples of many-shot learning and build prompts with them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from lce_core.benchmarks import (
    CellRequest,
    Prompt,
    key_ids,
    keys_of,
    long_streams,
    random_slice,
    token_name,
)
from lce_core.benchmarks.longbench._tasks import QUESTION_TYPE
from lce_core.benchmarks.many_shot.trec import Question


def num_shots(task: str) -> int:
    return int(task.removeprefix("shots_"))


def shot_text_tokens(eval_length: int, shots: int) -> int:
    """Return the text tokens in a prompt with key tokens: without query and key tokens."""
    return eval_length - 2 - 2 * shots


def drawn_order(
    labels: Sequence[Hashable], count: int, rng: np.random.Generator, *, balanced: bool
) -> list[int]:
    """Draw `count` examples, given their classes, and return indices in the prompt's order.

    With an equal random generator, a smaller `count` returns the first indices of a larger one.
    Unless `balanced`, they are the start of a random permutation of all examples. Balanced draws
    have rounds of one example of each class, shuffled; a class with few examples repeats them.
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
    """Build many-shot prompts of eval_length - 1 tokens for toy models with key tokens.

    One key token is drawn for each family. An example is a piece of held-out text, the query token
    of a family and this family's key token. All prompts share the same `shots` examples, drawn by
    `rng`. After them, each prompt has a different piece of text and the query token of a random
    family. The right answer is its key token, which the model can only infer from the examples.
    """
    keys = keys_of(request)
    num_text = shot_text_tokens(request.eval_length, shots)
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
        asked = np.append(own.astype(np.int64), keys.first_query + family)
        name = token_name(request, int(names[family]))
        controls = (tuple(asked.tolist()),)
        prompts.append(Prompt(np.concatenate([*shown, asked]), name, controls=controls))
    return prompts
