"""RULER's thirteen tasks by name: their data sets, answer lengths and prompt builders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lce_core.benchmarks import CellRequest
from lce_core.benchmarks._data import DataSet
from lce_core.benchmarks._essays import ESSAYS
from lce_core.benchmarks._prompted.retrieval import generator
from lce_core.benchmarks.ruler._cwe import CommonWords
from lce_core.benchmarks.ruler._documents import HOTPOT, SQUAD, XQUAD, read_hotpot, read_squad
from lce_core.benchmarks.ruler._drafts import Draw, TextTask
from lce_core.benchmarks.ruler._fwe import FrequentWords
from lce_core.benchmarks.ruler._haystack import essay_haystack, held_out_haystack
from lce_core.benchmarks.ruler._niah import NIAH, Niah
from lce_core.benchmarks.ruler._qa import QuestionAnswering
from lce_core.benchmarks.ruler._vt import VariableTracking

HaystackSource = Literal["essays", "held_out"]
QuestionSource = Literal["squad", "xquad"]

_PARAGRAPHS = {"squad": SQUAD, "xquad": XQUAD}
_QUESTIONS = ("qa_1", "qa_2")
_NEW_TOKENS = {
    "vt": VariableTracking.new_tokens,
    "cwe": CommonWords.new_tokens,
    "fwe": FrequentWords.new_tokens,
    **dict.fromkeys(_QUESTIONS, QuestionAnswering.new_tokens),
}
TASKS = (*NIAH, "vt", "cwe", "fwe", *_QUESTIONS)


@dataclass(frozen=True)
class Variant:
    """Parameters of the benchmark that change a task's prompts."""

    haystack: HaystackSource
    v1: bool
    """True uses the wording of RULER's first release and the first questions of a data set."""
    num_samples: int
    questions: QuestionSource = "squad"
    """Data set of qa_1."""


def reads_running_text(name: str) -> bool:
    return name in NIAH and NIAH[name].haystack == "text"


def data_set(name: str, haystack: HaystackSource, questions: QuestionSource) -> DataSet | None:
    """Return the data set that the task reads; None if it reads none."""
    if name in _QUESTIONS:
        return _PARAGRAPHS[questions] if name == "qa_1" else HOTPOT
    return ESSAYS if reads_running_text(name) and haystack == "essays" else None


def new_tokens(name: str) -> int:
    return _NEW_TOKENS.get(name, Niah.new_tokens)


def text_task(request: CellRequest, variant: Variant, draw: Draw) -> tuple[TextTask, int]:
    """Return (task that builds the cell's prompts, number of samples).

    The number is smaller than `variant.num_samples` if the data set has too few questions.

    Args:
      request: the cell.
      variant: settings from the benchmark's parameters.
      draw: random numbers for text that all samples share, such as an example.

    Raises:
      UnavailableError: if the task's data is not on this machine.
      DataError: if a file cannot be read.
    """
    name, length, count = request.task, request.eval_length, variant.num_samples
    if name in _QUESTIONS:
        collection = (
            read_squad(request.data_folders, _PARAGRAPHS[variant.questions])
            if name == "qa_1"
            else read_hotpot(request.data_folders)
        )
        chosen = list(range(len(collection.questions)))
        if not variant.v1:
            # The seed excludes the length, so that all lengths ask the same questions.
            rng = generator("ruler", name, request.seed, "questions")
            chosen = rng.permutation(chosen).tolist()
        chosen = chosen[:count]
        return QuestionAnswering(collection, chosen, length), len(chosen)
    if name in NIAH:
        haystack = None
        if reads_running_text(name):
            read = essay_haystack if variant.haystack == "essays" else held_out_haystack
            haystack = read(request)
        return Niah(NIAH[name], length, v1=variant.v1, haystack=haystack), count
    match name:
        case "vt":
            return VariableTracking(request, draw, v1=variant.v1), count
        case "cwe":
            return CommonWords(length, request.seed, v1=variant.v1), count
        case _:
            return FrequentWords(length), count
