"""Benchmarks, one module or subpackage each, and everything that a new benchmark imports.

Base classes: `PromptBenchmark` for benchmarks that score generated answers, `TextBenchmark` for
benchmarks that score the loss on running text. Both derive from `Benchmark`.
"""

from lce_core.benchmarks._base import (
    Benchmark as Benchmark,
    CellData as CellData,
    CellRequest as CellRequest,
    CellResult as CellResult,
    Profile as Profile,
    ProfileName as ProfileName,
    Sample as Sample,
    Score as Score,
    score as score,
)
from lce_core.benchmarks._data import (
    ESSAYS as ESSAYS,
    DataRow as DataRow,
    DataSet as DataSet,
    Table as Table,
    essays as essays,
    read_rows as read_rows,
    read_text as read_text,
    spread as spread,
)
from lce_core.benchmarks._prompted.benchmark import (
    PromptBenchmark as PromptBenchmark,
    Sampled as Sampled,
    Worded as Worded,
    strata as strata,
)
from lce_core.benchmarks._prompted.chat import chat_ids as chat_ids
from lce_core.benchmarks._prompted.keys import (
    MIN_TEXT as MIN_TEXT,
    KeyTask as KeyTask,
    keys_of as keys_of,
    token_name as token_name,
    without_keys as without_keys,
)
from lce_core.benchmarks._prompted.metrics import (
    column_mean as column_mean,
    occurrences as occurrences,
)
from lce_core.benchmarks._prompted.retrieval import (
    Prompt as Prompt,
    Stream as Stream,
    TokenIds as TokenIds,
    cut_middle as cut_middle,
    cut_middle_to_fit as cut_middle_to_fit,
    decoded as decoded,
    encode as encode,
    encoded as encoded,
    generator as generator,
    long_streams as long_streams,
    marking as marking,
    passed_share as passed_share,
    prompts_sha256 as prompts_sha256,
    random_slice as random_slice,
    text_answers as text_answers,
    token_ids as token_ids,
    too_long as too_long,
)
from lce_core.benchmarks._text.benchmark import (
    DEFAULT_SPAN as DEFAULT_SPAN,
    FAITHFUL_DOCUMENTS as FAITHFUL_DOCUMENTS,
    TINY_TOKENS as TINY_TOKENS,
    OverText as OverText,
    StreamBenchmark as StreamBenchmark,
    TextBenchmark as TextBenchmark,
    pack_losses as pack_losses,
    window_samples as window_samples,
)
from lce_core.benchmarks._text.documents import document_tokens as document_tokens
from lce_core.benchmarks._text.windows import (
    Scored as Scored,
    cut_windows as cut_windows,
    num_windows as num_windows,
    over_document_losses as over_document_losses,
    over_documents as over_documents,
    over_tokens as over_tokens,
    over_windows as over_windows,
    scored_means as scored_means,
    window_scores as window_scores,
)
from lce_core.data.sequences import Answers as Answers, Sequences as Sequences
from lce_core.evidence import calls as calls
from lce_core.kinds import CONTROLS as CONTROLS, WORDINGS as WORDINGS, Kind as Kind
from lce_core.progress import shifted as shifted
from lce_core.registry import Examples as Examples, Registry, Source as Source

BENCHMARKS: Registry[Benchmark] = Registry("lce_core.benchmarks", "BENCHMARK", Benchmark)
