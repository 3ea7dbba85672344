"""Ask several questions about one context that passes through the model once.

Each question starts from a cache that is cut back to the end of the context, and each continuation
and answer from one that is cut back to the end of the question. Its result is the same as if it
were asked alone. In a conversation, the cache keeps every question with its generated answer.

All questions share one request length, so methods whose frequencies depend on the length use the
same frequencies for every question.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from lce_core.errors import SpecError
from lce_core.evaluation.continuations import score_continuation
from lce_core.evaluation.cross_entropy import Head, token_scores
from lce_core.evaluation.decoding import Stop, greedy, next_states, stop_rule
from lce_core.evaluation.long_cell import LongCell, ragged, rows_of
from lce_core.evaluation.passes import CHUNK, PIECE, TokenIds
from lce_core.extension.extended_model import ExtendedModel
from lce_core.store.parts import Arrays


@dataclass(frozen=True, eq=False)
class Question:
    """A question about a context, and continuations of the question to score."""

    ids: TokenIds
    choices: tuple[TokenIds, ...] = ()
    stop: Stop | None = None


@dataclass(frozen=True, eq=False)
class Answered:
    """Results of `ask` for one context."""

    nll: NDArray[np.float32]
    """Negative log-likelihood in nats of the context's n tokens, (n - 1,), without the first."""
    answers: tuple[TokenIds, ...]
    log_likelihoods: tuple[tuple[float, ...], ...]
    """Log-probability in nats of each of a question's `choices`."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        choices = [np.array(values, dtype=np.float64) for values in self.log_likelihoods]
        return {"nll": self.nll, **ragged("answers", self.answers), **ragged("choices", choices)}

    @classmethod
    def of(cls, arrays: Arrays) -> Self:
        choices = (tuple(values.tolist()) for values in rows_of(arrays, "choices"))
        return cls(arrays["nll"], tuple(rows_of(arrays, "answers")), tuple(choices))


def ask(
    model: ExtendedModel,
    context: TokenIds,
    questions: Sequence[Question],
    *,
    max_new_tokens: int,
    num_tokens: int,
    share: bool = True,
    conversation: bool = False,
    cell: LongCell | None = None,
) -> Answered:
    """Answer each question after the context, which is processed only once.

    The context, any question, and its answer or any of its choices must fit into `num_tokens`; in a
    `conversation`, which asks each question after all earlier ones and the model's own answers, all
    of them. `share=False` processes everything before a question again: the results are equal. A
    long `cell` keeps them.
    """
    _check(context, questions, max_new_tokens, num_tokens, conversation=conversation)

    @torch.no_grad()
    def compute() -> Answered:
        model.begin_request(num_tokens)
        answers: list[TokenIds] = []
        log_likelihoods: list[tuple[float, ...]] = []
        cache = model.new_cache(num_tokens)
        nll = _prefill(model, context, cache)
        before, cached = context, len(context)
        for index, question in enumerate(questions):
            if index and not share:
                cache, cached = model.new_cache(num_tokens), len(before)
                _prefill(model, before, cache)
            model.cut_back(cache, cached)
            asked = np.concatenate([before, question.ids])
            state = _states(model, asked[cached:], cache)[-1:]
            end = len(asked)
            log_likelihoods.append(
                tuple(_choice(model, choice, state, cache, end) for choice in question.choices)
            )
            model.cut_back(cache, end)
            rules = [stop_rule(model, question.stop)]
            follow = partial(next_states, model, cache)
            answers += greedy(model, rules, max_new_tokens, state, follow)
            if conversation:
                before = np.concatenate([asked, answers[-1]])
                # The last token of an answer has not passed through the model.
                cached = len(before) - 1
        return Answered(nll, tuple(answers), tuple(log_likelihoods))

    if cell is None:
        return compute()
    texts = [text for question in questions for text in (question.ids, *question.choices)]
    inputs = [np.array([max_new_tokens, num_tokens]), context, *texts]
    return Answered.of(cell.part(inputs, lambda: compute().arrays()))


def _check(
    context: TokenIds,
    questions: Sequence[Question],
    max_new_tokens: int,
    num_tokens: int,
    *,
    conversation: bool,
) -> None:
    parts = [context, *(q.ids for q in questions), *(c for q in questions for c in q.choices)]
    needed = [
        len(question.ids) + max(max_new_tokens, *map(len, question.choices), 1)
        for question in questions
    ]
    longest = sum(needed) if conversation else max(needed, default=0)
    asked = "all questions with their answers" if conversation else "a question with its answer"
    sizes = f"a context of {len(context)} tokens, {longest} for {asked}"
    if min(map(len, parts)) < 1:
        raise SpecError(
            "ask",
            f"an empty context, question or choice ({sizes}, in a request of {num_tokens})",
            "at least 1 token in each",
            "remove the empty text",
        )
    if len(context) + longest > num_tokens:
        raise SpecError(
            "ask",
            f"{sizes}, in a request of {num_tokens}",
            "a context and a question with its answer that fit the request together",
            "raise num_tokens, or shorten the context",
        )


def _prefill(model: ExtendedModel, context: TokenIds, cache: DynamicCache) -> NDArray[np.float32]:
    head = Head.of(model.model)
    ids = torch.from_numpy(context).to(model.model.device)
    losses = []
    chunk = PIECE if model.coarse else CHUNK
    for start in range(0, len(ids), chunk):
        states = model.hidden_states(ids[None, start : start + chunk], cache)[0]
        following = ids[start + 1 : start + 1 + len(states)]
        losses.append(token_scores(states[: len(following)], head, following)[0])
    return np.asarray(torch.cat(losses).float().cpu().numpy())


def _states(model: ExtendedModel, ids: TokenIds, cache: DynamicCache) -> torch.Tensor:
    return model.hidden_states(torch.from_numpy(ids[None]).to(model.model.device), cache)[0]


def _choice(
    model: ExtendedModel, choice: TokenIds, state: torch.Tensor, cache: DynamicCache, end: int
) -> float:
    """Return the log-probability in nats of a choice after the token with hidden state `state`."""
    states = state
    if len(choice) > 1:
        model.cut_back(cache, end)
        states = torch.cat([state, _states(model, choice[:-1], cache)])
    return score_continuation(model, states, choice)[0]
