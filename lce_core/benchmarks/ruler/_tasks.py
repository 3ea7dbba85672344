"""RULER's thirteen tasks by name: their data sets, answer lengths and prompt builders."""

from __future__ import annotations

from typing import Literal

from lce_core.benchmarks import ESSAYS, CellRequest, DataSet, generator
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


def reads_running_text(name: str) -> bool:
    return name in NIAH and NIAH[name].haystack == "text"


def data_set(name: str, haystack: HaystackSource, questions: QuestionSource) -> DataSet | None:
    if name in _QUESTIONS:
        return _PARAGRAPHS[questions] if name == "qa_1" else HOTPOT
    return ESSAYS if reads_running_text(name) and haystack == "essays" else None


def new_tokens(name: str) -> int:
    return _NEW_TOKENS.get(name, Niah.new_tokens)


def text_task(
    request: CellRequest,
    draw: Draw,
    *,
    v1: bool,
    num_samples: int,
    haystack: HaystackSource = "essays",
    questions: QuestionSource = "squad",
) -> tuple[TextTask, int]:
    """Return (task that builds the cell's prompts, number of samples).

    The number is smaller than `num_samples` if the data set has too few questions. `draw` gives
    text that all samples share, such as an example. `v1` uses the wording of RULER's first release
    and the first questions of a data set.
    """
    name, length = request.task, request.eval_length
    if name in _QUESTIONS:
        collection = (
            read_squad(request.data_folders, _PARAGRAPHS[questions])
            if name == "qa_1"
            else read_hotpot(request.data_folders)
        )
        chosen = list(range(len(collection.questions)))
        if not v1:
            # The seed excludes the length, so that all lengths ask the same questions.
            rng = generator("ruler", name, request.seed, "questions")
            chosen = rng.permutation(chosen).tolist()
        chosen = chosen[:num_samples]
        return QuestionAnswering(collection, chosen, length), len(chosen)
    if name in NIAH:
        text = None
        if reads_running_text(name):
            read = essay_haystack if haystack == "essays" else held_out_haystack
            text = read(request)
        return Niah(NIAH[name], length, v1=v1, haystack=text), num_samples
    match name:
        case "vt":
            return VariableTracking(request, draw, v1=v1), num_samples
        case "cwe":
            return CommonWords(length, request.seed, v1=v1), num_samples
        case _:
            return FrequentWords(length), num_samples
