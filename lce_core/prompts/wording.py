"""Descriptions of a sample and its prompts, which `lce prompt` and the dashboard show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from lce_core.prompts.reading import ReadablePrompt, ReadableSample


def to_json(found: ReadableSample) -> dict[str, Any]:
    """Convert a sample to JSON, with the lines of `origin` and the `size` of each prompt."""
    prompts = [{**asdict(prompt), "size": size(prompt)} for prompt in found.prompts]
    return {**asdict(found), "origin": list(origin(found)), "prompts": prompts}


def origin(found: ReadableSample) -> Iterator[str]:
    """Yield lines that say how the prompts were verified and which tokenizer decoded them."""
    yield "Prompts were built again; the sha256 of their token ids matches the cell's record"
    yield f"Token ids decoded by the tokenizer of {found.tokenizer}, special tokens included"
    if found.inserted_every is not None:
        yield f"The method inserts a token after every {found.inserted_every - 1} of these tokens"


def size(prompt: ReadablePrompt) -> str:
    """Describe a prompt: its length, where it contains a right answer, if its text is exact."""
    parts = [f"{len(prompt.ids):,} tokens, {len(prompt.text):,} characters"]
    if prompt.first_token is None:
        parts.append("contains no right answer word for word")
    else:
        times = f"{len(prompt.places):,} times" if len(prompt.places) > 1 else "once"
        share = prompt.first_token / len(prompt.ids)
        parts.append(
            f"contains a right answer {times}, first at token {prompt.first_token:,} ({share:.1%})"
        )
    if not prompt.is_exact:
        parts.append("inexact text: encoding it again yields other token ids")
    return "; ".join(parts)
