"""Kinds of benchmarks. This module imports nothing, so that reports can read it without torch."""

from typing import Literal

Kind = Literal["text", "retrieval", "reasoning", "understanding", "learning"]
"""Ability that a benchmark measures: the loss on running "text", "retrieval" of stated facts,
"reasoning" over several facts, "understanding" of documents, or "learning" from examples in the
prompt. Reports group benchmarks by kind, in this order."""

CONTROLS = ("no_context", "local_context")
"""Fields of `Sample` with the scores of control prompts, in the order of `Prompt.controls`."""

WORDINGS = ("single", "wording_1", "wording_2")
"""Tasks that ask for the same keys in different words; equal sample numbers are one sample."""
