"""RULER: thirteen synthetic tasks in four families, at any length and for any tokenizer.

Prompts have RULER's `base` template. The families are needles in a haystack (eight tasks), variable
tracking, common and frequent words, and question answering on SQuAD and HotpotQA.

`faithful` builds the prompts of RULER's first release (v1); only the sentence splitting of essays
differs. All samples of a cell draw from one random generator, seeded with RULER's `random_seed` 42
plus the study's seed. v1 finds the size of all prompts with the first sample. It does not count the
beginning-of-sequence token, so prompt and answer may exceed the length by one token, in `vt` by a
few more; `fwe` reserves nothing for its answer of 50 tokens. A sample that is too long is drawn
again one step smaller, in `vt` at the same size; `fwe` shrinks the same draw. All samples share one
permutation, so in `qa_1` the document with the answer has the same depth in all prompts with
equally many documents (seed 0: 95 % with 20 documents, 25 % with 190). Where v1 would draw forever,
the cell is unavailable.
"""

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import model_validator

from lce_core.benchmarks import (
    ESSAYS,
    CellData,
    CellRequest,
    DataSet,
    Examples,
    KeyTask,
    Profile,
    Prompt,
    Sampled,
    Source,
    calls,
    generator,
)
from lce_core.benchmarks.ruler._documents import (
    HOTPOT,
    NUM_QUESTIONS,
    SQUAD,
    XQUAD,
    QuestionAnswering,
    read_hotpot,
    read_squad,
)
from lce_core.benchmarks.ruler._drafts import NOISE, RULER_SEED, Draw, InUnits, ReleasedTask, Search
from lce_core.benchmarks.ruler._niah import NIAH, Niah, essay_haystack, held_out_haystack
from lce_core.benchmarks.ruler._vt import VariableTracking
from lce_core.benchmarks.ruler._words import CommonWords, FrequentWords
from lce_core.evaluation.metrics import string_match_all, string_match_part
from lce_core.models import LanguageModel

_PARAGRAPHS = {"squad": SQUAD, "xquad": XQUAD}
_QUESTIONS = ("qa_1", "qa_2")
NEW_TOKENS = {
    **dict.fromkeys(NIAH, Niah.new_tokens),
    "vt": VariableTracking.new_tokens,
    "cwe": CommonWords.new_tokens,
    "fwe": FrequentWords.new_tokens,
    **dict.fromkeys(_QUESTIONS, QuestionAnswering.new_tokens),
}
TASKS = tuple(NEW_TOKENS)
KEY_TASKS = {
    "niah_single_1": KeyTask(line=NOISE),
    "niah_single_2": KeyTask(),
    "niah_multikey_1": KeyTask(num_distractors=3),
    "niah_multikey_2": KeyTask(num_distractors=7, line=NOISE),
    "niah_multiquery": KeyTask(num_distractors=3, num_queries=4),
}
"""Tasks of the profile `tiny`. Their difficulty comes from the haystack, the distractors and the
number of queries, which single tokens preserve; the others need uuids, chains or counts."""


class Ruler(Sampled):
    """RULER: the score is the fraction of the references that the answer contains."""

    profiles = {
        "faithful": Profile(
            "500 prompts, identical to those of RULER's first release (v1)",
            num_samples=500,
            sizes="v1",
            permutations="fixed",
        ),
        "clean": Profile(
            "500 prompts of the largest size that fits with the answer, each with its own"
            " permutation",
            num_samples=500,
        ),
        "fast": Profile("clean with 100 prompts", num_samples=100),
        "tiny": Profile(
            "20 prompts with key tokens, in five of the tasks", num_samples=20, keys=KeyTask()
        ),
    }
    otherwise = "use a data set with more documents"
    data_on_demand = (XQUAD,)

    haystack: Literal["essays", "held_out"] = "essays"
    """Running text around the needles of niah_single_2, niah_single_3, niah_multikey_1,
    niah_multivalue and niah_multiquery."""
    questions: Literal["squad", "xquad"] = "squad"
    """Data set of qa_1: SQuAD, or the English XQuAD, whose 240 paragraphs suffice for prompts of at
    most 45,000 tokens."""
    sizes: Literal["v1", "search"] | None = None
    """"v1" grows prompts in the steps of RULER's first release; "search" finds the largest prompt
    that fits for each sample; None means v1 (faithful), search (clean, fast)."""
    permutations: Literal["fixed", "per_sample"] | None = None
    """"fixed" uses one permutation of documents or words for all samples, "per_sample" draws one
    for each; None means fixed (faithful), per_sample (clean, fast)."""

    @model_validator(mode="after")
    def _settings_have_effect(self) -> Self:
        if not self.in_words:
            of_texts = {"haystack", "questions", "sizes", "permutations"}
            self.refuse(sorted(of_texts & self.model_fields_set))
        return self

    def tasks(self) -> tuple[str, ...]:
        return TASKS if self.in_words else tuple(KEY_TASKS)

    def key_task(self, task: str) -> KeyTask | None:
        return None if self.in_words else KEY_TASKS[task]

    def prompt_tokens(self, task: str, eval_length: int) -> int:
        return max(1, eval_length - NEW_TOKENS[task])

    def reads(self, task: str) -> tuple[DataSet, ...]:
        if not self.in_words:
            return ()
        if task in _QUESTIONS:
            return (_PARAGRAPHS[self.questions] if task == "qa_1" else HOTPOT,)
        return (ESSAYS,) if reads_running_text(task) and self.haystack == "essays" else ()

    def data_samples(self, cell: CellData) -> int | None:
        (data, *_) = self.reads(cell.task) or (None,)
        if data is None or data.name not in NUM_QUESTIONS:
            return None
        (file,) = data.patterns
        return data.num_rows(cell.data_folders, file, NUM_QUESTIONS[data.name])

    def excerpt_tokens(self, base_model: LanguageModel, task: str, eval_length: int) -> int:
        # Prompts in words repeat a text that is too short.
        return 0 if self.in_words else super().excerpt_tokens(base_model, task, eval_length)

    def reads_held_out(self, task: str) -> bool:
        return self.haystack == "held_out" and reads_running_text(task)

    def build(self, request: CellRequest) -> list[Prompt]:
        task, count, draw = self._task(request)
        if self.setting("sizes") == "v1":
            return InUnits(request, task, draw).prompts(count)
        return Search(request, task, task.new_tokens, draw.order_seed).prompts(count)

    def slack_tokens(self, request: CellRequest) -> int:
        """Return the tokens of one size step, in v1 two: a shorter prompt has run out of text."""
        task, _, draw = self._task(request)
        search = Search(request, task, task.new_tokens, draw.order_seed)
        v1 = self.setting("sizes") == "v1"
        return 2 * search.growth(task.units.step) if v1 else search.growth(1)

    def new_tokens(self, task: str) -> int:
        return NEW_TOKENS[task]

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        return match(task, answer, prompt.right_answers)

    def complete(self, task: str, prompt: Prompt, answer: str) -> bool:
        return self.score_answer(task, prompt, answer) == 1

    def _task(self, request: CellRequest) -> tuple[ReleasedTask, int, Draw]:
        """Return (task that builds the cell's prompts, number of samples, random draws)."""
        name, length, count = request.task, request.eval_length, self.num_prompts(request.task)
        seed, v1 = RULER_SEED + request.seed, self.profile == "faithful"
        draw = Draw.of(seed, seed if self.setting("permutations") == "fixed" else None)
        if name in _QUESTIONS:
            collection = (
                read_squad(request.data_folders, _PARAGRAPHS[self.questions])
                if name == "qa_1"
                else read_hotpot(request.data_folders)
            )
            chosen = list(range(len(collection.questions)))
            if not v1:
                # The seed excludes the length, so that all lengths ask the same questions.
                rng = generator("ruler", name, request.seed, "questions")
                chosen = rng.permutation(chosen).tolist()
            chosen = chosen[:count]
            return QuestionAnswering(collection, chosen, length), len(chosen), draw
        if name in NIAH:
            text = None
            if reads_running_text(name):
                read = essay_haystack if self.haystack == "essays" else held_out_haystack
                text = read(request)
            return Niah(NIAH[name], request.cell_length, v1=v1, haystack=text), count, draw
        if name == "vt":
            return VariableTracking(request, draw, v1=v1), count, draw
        if name == "cwe":
            return CommonWords(request.cell_length, request.seed, v1=v1), count, draw
        return FrequentWords(length, request.cell_length), count, draw


def reads_running_text(task: str) -> bool:
    return task in NIAH and NIAH[task].haystack == "text"


def match(task: str, answer: str, references: Sequence[str]) -> float:
    """Return the fraction of references that an answer contains; any counts 1 in qa_1 and qa_2."""
    rule = string_match_part if task in _QUESTIONS else string_match_all
    return rule(answer, references)


BENCHMARK = Ruler
SOURCE = Source(
    paper="arXiv:2404.06654",
    place="section 3, appendix B; v1 as run by LCEG (arXiv:2409.12181), Tables 3 and 12-16",
    reference="github.com/NVIDIA/RULER@c3f5e3b4f87f97e048793bb510a3a6b19a46bf3a;"
    " github.com/Leooyii/LCEG@2ce672dc42b9b5d3e408e8117126c28caeaafcc0",
    differs="another sentence splitter replaces nltk's; if all documents of a data set fit, every"
    " sample shuffles them from sorted order; where v1 would draw forever, the cell is unavailable,"
    " or the example of vt has five blocks; generation stops once the score cannot rise. In clean"
    " and fast, each sample has its own seed, the keys of a prompt are distinct, essays repeat, and"
    " the length includes the beginning-of-sequence token",
)
EVIDENCE = tuple(
    calls(match, score, origin, task=task, answer=answer, references=references)
    for task, answer, references, score, origin in (
        (
            "niah_multivalue",
            "are 7 and\t8.",
            ["7", "8", "9", "1"],
            0.5,
            "share of references in the answer, RULER's string_match_all",
        ),
        (
            "qa_1",
            "In Paris.",
            ["Rome", "paris"],
            1.0,
            "any reference, case aside, RULER's string_match_part",
        ),
    )
)
EXAMPLES: Examples = ({"num_samples": 4},)
VERSION = 2
