"""Shipped studies in small: the same methods, benchmarks and tasks on tiny models and little text.

`shrunk` divides every length by 32, keeps two lengths of each benchmark that asks prompts, and
trains for two steps. `tiny_model` writes a base model of the same architecture with random weights
and a real tokenizer. `study_folders` makes a stand-in of every data set that a study reads, also of
one that is not shrunk, for its plan.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from flows.settings import study_path
from lce_core.benchmarks import BENCHMARKS
from lce_core.models import MODELS
from lce_core.study.spec import StudySpec
from lce_core.study.study_file import load_study
from tests.support.fixture_data import fixture_folders
from tests.support.repository import ROOT
from tests.support.ruler_prompts import STORY

FACTOR = 32
"""By what contexts, windows and rows are divided."""
NEAR, FAR = 1024, 1536
"""Lengths of prompts: up to the base model's context, and beyond it. What RULER's examples take is
no shorter for a small model."""
VOCABULARY = 2048
_OF_PROMPTS: dict[str, dict[str, int]] = {
    "ruler": {"num_samples": 1},
    "longbench": {"num_samples": 1},
    "long_eval": {"num_samples": 1},
    "passkey": {"num_samples": 1},
    "short_context": {"num_samples": 1},
    "many_shot": {"num_questions": 1, "permutations": 1},
    "needle": {"trials": 1},
}
"""The fewest prompts of each benchmark that asks any."""
_OF_METHODS = {
    "self_extend": {"window": 32, "group": 64},
    "rerope": {"window": 32},
    "lm_infinite": {"window": 64, "num_global": 10},
    "streaming_llm": {"window": 60, "num_sinks": 4},
    "landmark": {"block": 8, "train_length": 64},
}
"""Parameters that are lengths, for a context of 64 tokens or more."""


def shrunk(name: str) -> dict[str, Any]:
    """A shipped study as it would be written for the tiny forms of its base models.

    Every variant, benchmark and task of the study is in it; entries of a benchmark that ask the same
    methods keep their order.
    """
    study = load_study(study_path(name))
    return {
        "study": f"small-{study.study}",
        "hypothesis": study.hypothesis,
        "target_context": study.target_context // FACTOR,
        "train_tokens": 2 * _step(study),
        "corpus": {**study.corpus.identity_fields(), "held_out_percent": 40.0},
    }
