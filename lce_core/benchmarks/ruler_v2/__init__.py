"""RULER v2: retrieval, of several values and question answering, each at four levels of difficulty.

`mk_niah_basic` and `mv_niah_basic` are generated: a key's number of ten digits, or its four
numbers, among as many numbers of other keys as fit. `mk_niah_easy`, `mk_niah_medium` and
`mk_niah_hard` ask to copy, to copy and solve, or to solve one of many numbered MMLU questions;
`mv_niah_easy`, `mv_niah_medium` and `mv_niah_hard` to copy all four questions with one number, or
one of the four, with or without copying all four before. `qa_basic`, `qa_easy`, `qa_medium` and
`qa_hard` ask for the number of a repeated document, for that of a document about a question, or for
an answer to the question, with or without copying the documents before.
"""

import re
from collections.abc import Sequence

from lce_core.benchmarks import (
    CellData,
    CellRequest,
    DataSet,
    Examples,
    Profile,
    Prompt,
    Sampled,
    Source,
    calls,
    generator,
)
from lce_core.benchmarks.ruler._documents import HOTPOT, NUM_QUESTIONS, read_hotpot
from lce_core.benchmarks.ruler._drafts import Search, TextTask
from lce_core.benchmarks.ruler_v2._tasks import (
    ASKING,
    COPYING,
    MMLU,
    NUM_ROWS,
    ManyNeedles,
    NumberedDocuments,
    NumberedQuestions,
    read_mmlu,
)

NEW_TOKENS = {
    "mk_niah_basic": 32,
    "mk_niah_easy": 256,
    "mk_niah_medium": 256,
    "mk_niah_hard": 16,
    "mv_niah_basic": 128,
    "mv_niah_easy": 1024,
    "mv_niah_medium": 1024,
    "mv_niah_hard": 256,
    "qa_basic": 16,
    "qa_easy": 16,
    "qa_medium": 512,
    "qa_hard": 32,
}
"""Maximum tokens of an answer. The reference sets none; few MMLU questions have more than 256."""
_NUM_VALUES = {"mk_niah_basic": 1, "mv_niah_basic": 4}
_SOLVED = ("mk_niah_medium", "mk_niah_hard")


class RulerV2(Sampled):
    """RULER v2: the score is the fraction of the references that the answer contains."""

    task_names = tuple(NEW_TOKENS)
    profiles = {
        "clean": Profile("100 prompts per task", num_samples=100),
        "fast": Profile("20 prompts per task", num_samples=20),
    }
    otherwise = "use a data set with more rows"

    def prompt_tokens(self, task: str, eval_length: int) -> int:
        return max(1, eval_length - NEW_TOKENS[task])

    def reads(self, task: str) -> tuple[DataSet, ...]:
        if task in _NUM_VALUES:
            return ()
        return (HOTPOT,) if task in ASKING else (MMLU,)

    def data_samples(self, cell: CellData) -> int | None:
        if cell.task in _NUM_VALUES:
            return None
        if cell.task in ASKING:
            (file,) = HOTPOT.patterns
            return HOTPOT.num_rows(cell.data_folders, file, NUM_QUESTIONS[HOTPOT.name])
        return MMLU.num_rows(cell.data_folders, "test", NUM_ROWS["test"])

    def build(self, request: CellRequest) -> list[Prompt]:
        task, count = self._task(request)
        return Search(request, task, NEW_TOKENS[request.task]).prompts(count)

    def slack_tokens(self, request: CellRequest) -> int:
        return Search(request, self._task(request)[0], NEW_TOKENS[request.task]).growth(1)

    def new_tokens(self, task: str) -> int:
        return NEW_TOKENS[task]

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        return match(task, answer, prompt.right_answers)

    def complete(self, task: str, prompt: Prompt, answer: str) -> bool:
        return task in _SOLVED and "\n\n" in answer

    def _task(self, request: CellRequest) -> tuple[TextTask, int]:
        name, length, folders = request.task, request.eval_length, request.data_folders
        count = self.num_prompts(name)
        if name in _NUM_VALUES:
            return ManyNeedles(_NUM_VALUES[name], length), count
        # The seed excludes the length, so that all lengths ask the same questions.
        rng = generator("ruler_v2", name, request.seed, "questions")
        if name in ASKING:
            hotpot = read_hotpot(folders)
            chosen = rng.permutation(len(hotpot.questions))[:count].tolist()
            return NumberedDocuments(ASKING[name], hotpot, chosen, length), len(chosen)
        questions, others = read_mmlu(folders, "test"), read_mmlu(folders, "auxiliary_train")
        asked = [questions[at] for at in rng.permutation(len(questions))[:count]]
        return NumberedQuestions(COPYING[name], asked, others, length), len(asked)


def match(task: str, answer: str, references: Sequence[str]) -> float:
    """Return the score of an answer, 0..1.

    Source: eval_ruler2 and eval_mcq of github.com/NVIDIA/NeMo-Skills@2f7a3a3.
    """
    if task in _SOLVED:
        return float(letter(answer.partition("\n\n")[0]) == letter(references[0]))
    answer = answer.rpartition("</think>")[2].rpartition("Answer:")[2]
    if task == "mv_niah_medium":
        answer = answer.rpartition("\n\n")[2]
    if task.startswith("qa_"):
        # Remove copied documents, each of which ends at a blank line.
        answer = re.sub(r"Document \d+:(?:.*\n)+?\n", "", answer)
    found = [reference.lower() in answer.lower() for reference in references]
    return float(any(found)) if task.startswith("qa_") else sum(found) / len(found)


def letter(answer: str) -> str | None:
    """Return the letter that an answer states: in its last LaTeX box, or after "Answer:"."""
    box = _boxed(answer)
    if box is not None:
        single: list[str] = re.findall(r"\b[A-J]\b", box)
        return single[-1] if single and len(box) != 1 else box
    stated: list[str] = re.findall(
        r"(?i)[*_]{0,2}Answer[*_]{0,2}\s*:[\s*_]{0,2}\s*([A-Z])(?![a-zA-Z0-9])", answer
    )
    return stated[-1] if stated else None


def _boxed(text: str) -> str | None:
    _, found, rest = text.rpartition("\\boxed")
    if not found or not rest.startswith("{"):
        return None
    depth = 0
    for place, character in enumerate(rest):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return rest[1:place]
    return None


BENCHMARK = RulerV2
SOURCE = Source(
    paper="arXiv:2404.06654",
    place="RULER v2, which has no paper of its own: the authors' data set ruler2",
    reference="github.com/NVIDIA/NeMo-Skills@077bbe09b153f9025831a0d06c812e84d9891475",
    differs="prompts are those of the reference's option for base models, --prompt_type base; keys"
    " and numbers of a prompt are distinct; documents around HotpotQA's come from its dev file"
    " instead of the training file; each sample has its own seed and the largest prompt that fits,"
    " and the length includes the answer's tokens; solved answers end at a blank line",
)
EVIDENCE = tuple(
    calls(match, value, origin, task=task, answer=answer, references=references)
    for task, answer, references, value, origin in (
        ("mv_niah_basic", " 12, 34 and 9", ["12", "34", "56", "78"], 0.5, "all: two of four"),
        ("mk_niah_easy", "WHY? a. so", ["Why? A. So"], 1.0, "all: upper and lower case"),
        ("mk_niah_easy", "Why? Answer: no", ["Why?"], 0.0, "text before Answer: is dropped"),
        ("mv_niah_medium", "One?\n\nTwo?", ["One?"], 0.0, "2steps: the last paragraph"),
        ("qa_hard", " Rome or Oslo", ["Paris", "Oslo"], 1.0, "part: any reference"),
        ("qa_medium", "Document 7:\nOslo\n\nRome", ["Oslo"], 0.0, "part: no copied documents"),
        ("mk_niah_hard", " \\boxed{B}", ["\\boxed{B}"], 1.0, "multichoice: a boxed letter"),
        ("mk_niah_hard", " **Answer:** C", ["\\boxed{C}"], 1.0, "multichoice: a named letter"),
        ("mk_niah_hard", " B", ["\\boxed{B}"], 0.0, "multichoice: a bare letter"),
    )
)
EXAMPLES: Examples = ({"num_samples": 3},)
VERSION = 1
