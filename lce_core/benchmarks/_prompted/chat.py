"""Put prompts into the chat template of a base model.

A template is part of the tokenizer's files, which the base model's commit or the digest of its
folder identifies in every id. transformers renders it in a sandbox of jinja.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lce_core.benchmarks._base import CellRequest
from lce_core.benchmarks._prompted.retrieval import Prompt, TokenIds, encode
from lce_core.errors import UnavailableError

_DATE = "{%- macro strftime_now(format) -%} 26 Jul 2024 {%- endmacro -%}"
"""Start of a template, by which it states the default date of Llama 3's template instead of today's
date, which would change the prompts from day to day."""
_PROBE = "Xylophone"
"""Message whose tokens show where a template puts the text of the user."""


def chat_ids(
    request: CellRequest, messages: Sequence[Mapping[str, str]], system_prompt: str | None
) -> TokenIds:
    """Return the token ids of a chat, which end where the model's answer begins.

    `messages` are mappings with role and content. If `system_prompt` is None, the template decides
    whether there is one. Raises UnavailableError if the base model has no template for this chat.
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
    def of(cls, request: CellRequest, system_prompt: str | None) -> Frame:
        """Raise UnavailableError as `chat_ids`, or if the template changes the message's tokens."""
        probe = encode(request, _PROBE, special_tokens=False)
        ids = chat_ids(request, [{"role": "user", "content": _PROBE}], system_prompt)
        found = [at for at, _ in enumerate(ids) if ids[at : at + len(probe)].tolist() == probe]
        if len(found) != 1:
            raise _no_template(request, f"one that holds a message's tokens {len(found)} times")
        before, after = ids[: found[0]], ids[found[0] + len(probe) :]
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


def _no_template(request: CellRequest, got: str) -> UnavailableError:
    return UnavailableError(
        f"base model {request.base_model.known_as}: chat template",
        got,
        "a template of its tokenizer that renders this chat",
        "use an instruction-tuned base model, or omit `chat`",
    )
