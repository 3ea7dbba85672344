"""Describe a sample with its prompts as text or JSON, for `lce prompt` and the dashboard alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from lce_core.prompts.reading import ReadablePrompt, ReadableSample


def to_json(found: ReadableSample) -> dict[str, Any]:
    """Return all fields of a sample, its `origin`, and each prompt with its `size`."""
    prompts = [{**asdict(prompt), "size": size(prompt)} for prompt in found.prompts]
    return {**asdict(found), "origin": list(origin(found)), "prompts": prompts}


def origin(found: ReadableSample) -> Iterator[str]:
    """Yield lines for the user: how the prompts were verified, and which tokenizer decoded them."""
    yield "Built again: the sha256 of all token ids of the cell is that of its record"
    yield f"Token ids decoded by the tokenizer of {found.tokenizer}, special tokens included"
    if found.inserted_every is not None:
        yield f"The method puts a token of its own after every {found.inserted_every - 1} of these"


def size(prompt: ReadablePrompt) -> str:
    """Describe a prompt: its length, where a right answer occurs, and whether its text is inexact.

    The text is inexact if encoding it again gives other token ids.
    """
    parts = [f"{len(prompt.ids):,} tokens, {len(prompt.text):,} characters"]
    if prompt.first_token is None:
        parts.append("no right answer stands in it word for word")
    else:
        times = f"{len(prompt.places):,} times" if len(prompt.places) > 1 else "once"
        share = prompt.first_token / len(prompt.ids)
        parts.append(
            f"a right answer stands in it {times}, first at token {prompt.first_token:,}"
            f" ({share:.1%})"
        )
    if not prompt.is_exact:
        parts.append("the text encodes to other ids than those that the model was given")
    return "; ".join(parts)
