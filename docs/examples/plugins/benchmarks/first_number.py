"""Repeat the number that the first sentence of a long text states.

An answer is correct if it starts with the number. `clean` has 100 prompts with five-digit numbers.
"""

from __future__ import annotations

import numpy as np

from lce_core.benchmarks import CellRequest, Profile, Prompt, PromptBenchmark, Source, calls

FILLER = "The grass is green. The sky is blue. "


class FirstNumber(PromptBenchmark):
    """Share of numbers that the model repeats."""

    profiles = {"clean": Profile("100 numbers of five digits", num_samples=100)}
    answer_tokens = 8

    def prompt(self, request: CellRequest, index: int, rng: np.random.Generator) -> Prompt:
        """Build the longest prompt that fits: filler, then the question."""
        answer = str(rng.integers(10_000, 100_000))
        asked = "The number is"
        ids = self.filled(request, lambda count: f"{asked} {answer}. {FILLER * count}{asked}")
        return Prompt(ids, answer, depth=0.0)

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        """Return the score of an answer, 0 to 1."""
        return rating(answer, prompt.reference)


def rating(answer: str, reference: str) -> float:
    """Return 1 if the answer starts with the number, else 0."""
    return float(answer.strip().startswith(reference))


BENCHMARK = FirstNumber
SOURCE = Source(
    paper="arXiv:2305.16300",
    place="section 4.2, passkey retrieval, simplified",
    reference="own",
)
EVIDENCE = (calls(rating, 1.0, "by hand", answer=" 4711.", reference="4711"),)
VERSION = 1
