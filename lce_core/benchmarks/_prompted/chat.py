"""Put prompts into the chat template of a base model, which its tokenizer's files contain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, takewhile
from typing import Self

import numpy as np

from lce_core.benchmarks._base import CellRequest
from lce_core.benchmarks._prompted.retrieval import Prompt, TokenIds, decoded, encode
from lce_core.errors import UnavailableError

_DATE = "{%- macro strftime_now(format) -%} 26 Jul 2024 {%- endmacro -%}"
"""Start of a template, by which it states the default date of Llama 3's template instead of today's
date, which would change the prompts from day to day."""
_PROBES = ("Xylophone", "Question")
"""Messages without a common first or last token: the tokens around both are the template's."""


def chat_ids(
    request: CellRequest, messages: Sequence[Mapping[str, str]], system_prompt: str | None
) -> TokenIds:
    """Return the token ids of a chat of messages with role and content, up to the model's answer.

    If `system_prompt` is None, the template decides whether there is one. If the template refuses
    successive messages of one role, as Gemma's does, they become one message. Raises
    UnavailableError if the base model has no template for this chat.
    """
    if system_prompt is not None:
        messages = [{"role": "system", "content": system_prompt}, *messages]
    try:
        text = request.tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            chat_template=_DATE + request.tokenizer.get_chat_template(),
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=False,
        )
    except Exception as error:  # a template raises what it likes
        joined = [
            {"role": role, "content": "\n".join(message["content"] for message in turns)}
            for role, turns in groupby(messages, key=lambda message: message["role"])
        ]
        if len(joined) < len(messages):
            return chat_ids(request, joined, None)
        raise _no_template(request, f"{type(error).__name__}: {error}") from error
    return np.array(encode(request, str(text), special_tokens=False, names=True), dtype=np.int64)


@dataclass(frozen=True)
class Frame:
    """Token ids that a chat template puts around a message of the user."""

    before: TokenIds
    after: TokenIds
    begin: int
    """Special tokens at the start of a prompt, which `before` replaces."""

    @classmethod
    def of(cls, request: CellRequest, system_prompt: str | None) -> Self:
        ids, other = (
            chat_ids(request, [{"role": "user", "content": probe}], system_prompt).tolist()
            for probe in _PROBES
        )
        start, end = _num_common(ids, other), len(ids) - _num_common(ids[::-1], other[::-1])
        alone = encode(request, _PROBES[0], special_tokens=False)
        if ids[max(0, end - len(alone)) : end] == alone:
            # Some tokenizers put a blank before every text.
            start = min(start, end - len(alone))
        shown = decoded(request.tokenizer, ids[start:end])
        if shown.removeprefix(" ") != _PROBES[0]:
            raise _no_template(request, f"one that renders the message {_PROBES[0]!r} as {shown!r}")
        before, after = (np.array(part, dtype=np.int64) for part in (ids[:start], ids[end:]))
        return cls(before, after, len(encode(request, "")))

    @property
    def num_tokens(self) -> int:
        """Number of tokens that the template adds to a prompt."""
        return len(self.before) + len(self.after) - self.begin

    def around(self, prompt: Prompt) -> Prompt:
        moved = len(self.before) - self.begin
        inserted = (0, len(self.before), *(place + moved for place in prompt.inserted))
        return replace(
            prompt,
            ids=np.concatenate([self.before, prompt.ids[self.begin :], self.after]),
            context_tokens=prompt.context_tokens and prompt.context_tokens + moved,
            inserted=inserted if prompt.inserted else (),
            controls=tuple(
                (*self.before.tolist(), *ids[self.begin :], *self.after.tolist())
                for ids in prompt.controls
            ),
        )


def _num_common(ids: list[int], other: list[int]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ids, other, strict=False)))


def _no_template(request: CellRequest, got: str) -> UnavailableError:
    return UnavailableError(
        f"base model {request.base_model.known_as}: chat template",
        got,
        "a template of its tokenizer that renders this chat",
        "omit `chat`, or `system_prompt` if the template has none, or use an instruction-tuned base"
        " model",
    )
