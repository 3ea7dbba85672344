"""Benchmarks, one module or subpackage each, and everything that a new benchmark imports.

Base classes: `PromptBenchmark` for benchmarks that score generated answers, `TextBenchmark` for
benchmarks that score the loss on running text. Both derive from `Benchmark`.
"""

from lce_core.benchmarks._base import (
    Benchmark,
    CellData,
    CellRequest,
    CellResult,
    Profile,
    ProfileName,
    Sample,
    Score,
    score,
)
from lce_core.benchmarks._data import (
    ESSAYS,
    DataRow,
    DataSet,
    Table,
    essays,
    read_rows,
    read_text,
    spread,
)
from lce_core.benchmarks._prompted.benchmark import (
    PromptBenchmark,
    Sampled,
    Worded,
    strata,
)
from lce_core.benchmarks._prompted.chat import chat_ids
from lce_core.benchmarks._prompted.keys import (
    MIN_TEXT,
    KeyTask,
    key_ids,
    keys_of,
    token_name,
    without_keys,
)
from lce_core.benchmarks._prompted.metrics import column_mean, occurrences
from lce_core.benchmarks._prompted.retrieval import (
    Prompt,
    Stream,
    TokenIds,
    cut_middle,
    cut_middle_to_fit,
    decoded,
    encode,
    encoded,
    generator,
    last_that_fits,
    long_streams,
    marking,
    passed_share,
    prompts_sha256,
    random_slice,
    text_answers,
    token_ids,
    too_long,
)
from lce_core.benchmarks._text.benchmark import (
    DEFAULT_SPAN,
    FAITHFUL_DOCUMENTS,
    TINY_TOKENS,
    OverText,
    TextBenchmark,
    pack_losses,
    window_samples,
)
from lce_core.benchmarks._text.documents import document_tokens
from lce_core.benchmarks._text.windows import (
    Scored,
    cut_windows,
    num_windows,
    over_document_losses,
    over_documents,
    over_tokens,
    over_windows,
    scored_means,
    window_scores,
)
from lce_core.data.sequences import Answers, Sequences
from lce_core.evidence import calls
from lce_core.kinds import CONTROLS, WORDINGS, Kind
from lce_core.progress import shifted
from lce_core.registry import Examples, Registry, Source

__all__ = [
    "BENCHMARKS",
    "CONTROLS",
    "DEFAULT_SPAN",
    "ESSAYS",
    "FAITHFUL_DOCUMENTS",
    "MIN_TEXT",
    "TINY_TOKENS",
    "WORDINGS",
    "Answers",
    "Benchmark",
    "CellData",
    "CellRequest",
    "CellResult",
    "DataRow",
    "DataSet",
    "Examples",
    "KeyTask",
    "Kind",
    "OverText",
    "Profile",
    "ProfileName",
    "Prompt",
    "PromptBenchmark",
    "Sample",
    "Sampled",
    "Score",
    "Scored",
    "Sequences",
    "Source",
    "Stream",
    "Table",
    "TextBenchmark",
    "TokenIds",
    "Worded",
    "calls",
    "chat_ids",
    "column_mean",
    "cut_middle",
    "cut_middle_to_fit",
    "cut_windows",
    "decoded",
    "document_tokens",
    "encode",
    "encoded",
    "essays",
    "generator",
    "key_ids",
    "keys_of",
    "last_that_fits",
    "long_streams",
    "marking",
    "num_windows",
    "occurrences",
    "over_document_losses",
    "over_documents",
    "over_tokens",
    "over_windows",
    "pack_losses",
    "passed_share",
    "prompts_sha256",
    "random_slice",
    "read_rows",
    "read_text",
    "score",
    "scored_means",
    "shifted",
    "spread",
    "strata",
    "text_answers",
    "token_ids",
    "token_name",
    "too_long",
    "window_samples",
    "window_scores",
    "without_keys",
]

BENCHMARKS: Registry[Benchmark] = Registry("lce_core.benchmarks", "BENCHMARK", Benchmark)
