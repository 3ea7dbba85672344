"""LongBench, the 16 English tasks: a long document, then a question or instruction about it.

If a prompt exceeds the cell's length, its middle is removed. In `faithful`, as in LCEG, the
shortened prompt alone fills the length; `clean` reserves tokens for the answer.

In some tasks only the first line of an answer is scored, and generation stops after it. With
`first_line: longbench` these are the few-shot tasks; with `first_line: lceg`, the default, because
base models do not stop by themselves after an answer, also the question answering and synthetic
tasks. The published score is 100 times the score here, and the published average is the mean over
tasks. Intervals: bootstrap over documents.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lce_core.benchmarks import (
    CellData,
    CellRequest,
    DataSet,
    Profile,
    Prompt,
    Sampled,
    Sequences,
    Source,
    Table,
    calls,
    cut_middle,
    cut_middle_to_fit,
    encode,
    read_rows,
    spread,
)
from lce_core.benchmarks.longbench.tasks import TASKS, FirstLine, first_line
from lce_core.errors import DataError
from lce_core.models import LanguageModel
from lce_core.store.identity import fingerprint

_TOKENS_PER_WORD = 1.47
"""Mean Llama tokens per word, counted on multi_news, for cost estimates."""
_MIN_PROMPT = 32
"""Minimum tokens left for a prompt; fewer would contain only instructions."""
_WITHOUT_CHAT = ("trec", "triviaqa", "samsum", "lcc", "repobench-p")
"""Tasks whose prompts LongBench's pred.py puts into no chat template."""
_COLUMNS = ("input", "context", "answers", "all_classes")


@dataclass(frozen=True)
class LongBenchRow:
    """One row of a task's file."""

    context: str
    given: str
    """The column `input`: a question, an instruction or the start of a line of code."""
    answers: tuple[str, ...]
    classes: tuple[str, ...]


class LongBench(Sampled):
    """LongBench: the score is the mean over rows of the task's own metric, 0 to 1."""

    seeded = False
    # The documents determine the lengths of the prompts.
    fills_length = False
    default_metric = "score"
    kind = "understanding"
    task_names = tuple(TASKS)
    profiles = {
        "faithful": Profile(
            "prompts shortened to the length, which the answer exceeds, as in LCEG"
        ),
        "clean": Profile("prompts shortened to the length minus the answer"),
        "fast": Profile("clean with 100 rows of each task", num_samples=100),
    }

    first_line: FirstLine = "lceg"
    """Repository whose rule selects the tasks that score only the first line of an answer."""

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        reserved = self._reserved(task)
        if eval_length >= _MIN_PROMPT + reserved:
            return None
        return (
            f"eval_length {eval_length}: {task} needs at least {_MIN_PROMPT + reserved} tokens"
            f" ({_MIN_PROMPT} for the prompt and {reserved} for the answer)"
        )

    def reads(self, task: str) -> tuple[DataSet, ...]:
        return (data_set(task),)

    def num_prompts(self, task: str) -> int:
        return len(self._chosen(TASKS[task].num_rows))

    def prompt_tokens(self, task: str, eval_length: int) -> int:
        mean_tokens = round(_TOKENS_PER_WORD * TASKS[task].mean_words)
        return min(eval_length - self._reserved(task), mean_tokens)

    def data_sequences(self, cell: CellData) -> Sequences | None:
        task, folders = TASKS[cell.task], cell.data_folders

        def read() -> list[int]:
            rows = longbench_rows(cell.task, folders, task.num_rows)
            return [len(task.question(row.context, row.given).encode()) for row in rows]

        what = f"longbench {VERSION}: bytes of {cell.task}"
        sizes = data_set(cell.task).fact(what, folders, read)
        room = cell.eval_length - self._reserved(cell.task)
        return Sequences.of(
            min(room, round(sizes[index] / cell.base_model.bytes_per_token))
            for index in self._chosen(len(sizes))
        )

    def data_samples(self, cell: CellData) -> int:
        published = TASKS[cell.task].num_rows
        return data_set(cell.task).num_rows(cell.data_folders, f"{cell.task}.jsonl", published)

    def rows(self, request: CellRequest) -> list[LongBenchRow]:
        num_rows = TASKS[request.task].num_rows
        rows = longbench_rows(request.task, request.data_folders, num_rows)
        return [rows[index] for index in self._chosen(len(rows))]

    def fresh_prompts(self, request: CellRequest) -> Sequence[Prompt]:
        plain = request.task in _WITHOUT_CHAT
        return self.build(request) if plain else super().fresh_prompts(request)

    def build(self, request: CellRequest) -> list[Prompt]:
        task = TASKS[request.task]
        cut = cut_middle if self.profile == "faithful" else cut_middle_to_fit
        room = request.eval_length - self._reserved(request.task)
        prompts = []
        for row in self.rows(request):
            text = task.question(row.context, row.given)
            ids = cut(request, text, room)
            prompts.append(
                Prompt(
                    np.array(ids, dtype=np.int64),
                    row.answers[0],
                    references=row.answers,
                    labels=row.classes,
                    cluster=fingerprint([row.context])[:12],
                    controls=(tuple(cut(request, task.question("", row.given), room)),),
                    is_cut=ids != encode(request, text),
                )
            )
        return prompts

    def new_tokens(self, task: str) -> int:
        return TASKS[task].max_new_tokens

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        return answer_score(task, answer, prompt.references, prompt.labels, self.first_line)

    def complete(self, task: str, prompt: Prompt, answer: str) -> bool:
        return TASKS[task].complete(self.first_line)(answer)

    def _reserved(self, task: str) -> int:
        return 0 if self.profile == "faithful" else self.new_tokens(task)

    def _chosen(self, num_rows: int) -> list[int]:
        return spread(num_rows, self.setting("num_samples") or num_rows)


def answer_score(
    task: str, prediction: str, answers: Sequence[str], classes: Sequence[str], rule: FirstLine
) -> float:
    """Return the score (0..1) of a prediction: the best over all reference answers."""
    definition = TASKS[task]
    counted = first_line(prediction) if rule in definition.first_line_rules else prediction
    return max(definition.metric(counted, answer, classes) for answer in answers)


def data_set(task: str) -> DataSet:
    return DataSet(
        "longbench",
        (f"{task}.jsonl",),
        "huggingface.co/datasets/zai-org/LongBench (data.zip), one TASK.jsonl for each task",
        (Table(task, "test"),),
    )


def longbench_rows(task: str, folders: Mapping[str, Path], num_rows: int) -> list[LongBenchRow]:
    """Return all rows of a task in the order of its file, which published `num_rows`."""
    (file,) = data_set(task).files(folders)
    rows = [
        _row(row, f"{file}: row {number}")
        for number, row in enumerate(read_rows(file, _COLUMNS), start=1)
    ]
    data_set(task).require_rows(folders, file.name, len(rows), num_rows)
    return rows


def _row(row: dict[str, Any], place: str) -> LongBenchRow:
    answers, classes = row["answers"], row["all_classes"]
    for column, is_valid, expected in (
        ("input", isinstance(row["input"], str), "text"),
        ("context", isinstance(row["context"], str), "text"),
        ("answers", _are_texts(answers) and bool(answers), "a list of at least one text"),
        ("all_classes", classes is None or _are_texts(classes), "a list of texts, or null"),
    ):
        if not is_valid:
            got, remedy = repr(row[column])[:80], "use the data set in its published form"
            raise DataError(f"{place}: column {column!r}", got, expected, remedy)
    return LongBenchRow(row["context"], row["input"], tuple(answers), tuple(classes or ()))


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


BENCHMARK = LongBench
SOURCE = Source(
    paper="arXiv:2308.14508",
    place="16 English tasks; as in arXiv:2409.12181, Tables 4 and 11",
    reference="github.com/Leooyii/LCEG@2ce672dc42b9b5d3e408e8117126c28caeaafcc0",
    differs="generation of samsum stops after the first line, which is scored; LCEG stops it at any"
    " newline and forbids a newline as first token",
)
EVIDENCE = (
    calls(
        answer_score,
        2 / 3,
        "first line: 2 words in common, of 3 and 3 without the article, by hand",
        task="qasper",
        prediction="\nthe South West Ultras\nQuestion: who",
        answers=("none", "West Ultras fan"),
        classes=(),
        rule="lceg",
    ),
    calls(
        answer_score,
        0.749999995,
        "3 words of 4 in common, by hand; less 5e-9, which is the 1e-8 of the package rouge",
        task="multi_news",
        prediction="police killed the gunman",
        answers=("police kill the gunman",),
        classes=(),
        rule="longbench",
    ),
    calls(
        answer_score,
        0.5,
        "LongBench's rule: one over the number of classes named",
        task="trec",
        prediction=" Date or Price",
        answers=("Date",),
        classes=("Date", "Price", "Speed"),
        rule="longbench",
    ),
    calls(
        answer_score,
        0.8,
        "2 x 4 matching characters of 10; the comment is passed over",
        task="lcc",
        prediction="# a\nx = 1\n",
        answers=("x = 2",),
        classes=(),
        rule="longbench",
    ),
)
VERSION = 1
