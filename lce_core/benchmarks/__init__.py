"""Benchmarks, one module or subpackage each, and everything that a new benchmark imports.

Base classes: `PromptBenchmark` for benchmarks that score generated answers, `TextBenchmark` for
benchmarks that score the loss on running text. Both derive from `Benchmark`.
"""

from __future__ import annotations

from lce_core.benchmarks._base import (
    Benchmark,
    CellRequest,
    CellResult,
    Form,
    Profile,
    Sample,
    Score,
    score,
)
from lce_core.benchmarks._data import DataSet
from lce_core.benchmarks._prompted.benchmark import PromptBenchmark, PromptForm, mean_score, strata
from lce_core.benchmarks._prompted.key_form import KeyForm
from lce_core.benchmarks._prompted.label_form import LabelForm, LabelPrompt
from lce_core.benchmarks._prompted.retrieval import (
    Prompt,
    blank_prompt,
    decoded,
    encode,
    generator,
    prompts_sha256,
)
from lce_core.benchmarks._text.benchmark import TextBenchmark, TextForm
from lce_core.data.sequences import Sequences
from lce_core.evidence import calls
from lce_core.kinds import Kind
from lce_core.registry import Examples, Registry, Source

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "CellRequest",
    "CellResult",
    "DataSet",
    "Examples",
    "Form",
    "KeyForm",
    "Kind",
    "LabelForm",
    "LabelPrompt",
    "Profile",
    "Prompt",
    "PromptBenchmark",
    "PromptForm",
    "Sample",
    "Score",
    "Sequences",
    "Source",
    "TextBenchmark",
    "TextForm",
    "blank_prompt",
    "calls",
    "decoded",
    "encode",
    "generator",
    "mean_score",
    "prompts_sha256",
    "score",
    "strata",
]

BENCHMARKS: Registry[Benchmark] = Registry("lce_core.benchmarks", "BENCHMARK", Benchmark)
