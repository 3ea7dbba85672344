"""The six short-context tasks of lm-evaluation-harness: shots, metrics, costs and data files.

A data folder contains the files of the hub's repository; only the splits listed here are needed.
PIQA's original files also work.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lce_core.benchmarks import DataRow, DataSet, Table, read_rows, read_text
from lce_core.errors import DataError

Folders = Mapping[str, Path]
_SUBJECTS = (
    "abstract_algebra anatomy astronomy business_ethics clinical_knowledge college_biology"
    " college_chemistry college_computer_science college_mathematics college_medicine"
    " college_physics computer_security conceptual_physics econometrics electrical_engineering"
    " elementary_mathematics formal_logic global_facts high_school_biology"
    " high_school_chemistry high_school_computer_science high_school_european_history"
    " high_school_geography high_school_government_and_politics high_school_macroeconomics"
    " high_school_mathematics high_school_microeconomics high_school_physics"
    " high_school_psychology high_school_statistics high_school_us_history"
    " high_school_world_history human_aging human_sexuality international_law jurisprudence"
    " logical_fallacies machine_learning management marketing medical_genetics miscellaneous"
    " moral_disputes moral_scenarios nutrition philosophy prehistory professional_accounting"
    " professional_law professional_medicine professional_psychology public_relations"
    " security_studies sociology us_foreign_policy virology world_religions"
)
MMLU_SUBJECTS = tuple(_SUBJECTS.split())


@dataclass(frozen=True)
class ShortTask:
    """One task of the harness, with its data files and the cost of a question."""

    folder: str
    """Folder with the task's YAML definition, below `lm_eval/tasks`."""
    shots: int
    metric: str
    splits: Mapping[str, DataSet]
    """Files of each split by the harness's name. The last split has the questions; an earlier one,
    if any, has the solved examples."""
    columns: tuple[str, ...]
    num_questions: int
    requests: int
    """Forward passes per question: one per choice, or the mean if questions differ in choices."""
    request_tokens: int
    """Estimated Llama tokens of one forward pass, for cost estimates."""
    own_tokens: int | None = None
    """Estimated Llama tokens that a forward pass adds to the prefixes that it shares: a question's
    context with its choices, in MMLU and TruthfulQA the examples. None: too little is shared."""
    num_shown: int = 0
    """Rows of the split with the solved examples; 0 if the task has no such split."""


def _splits(
    name: str,
    repo: str,
    splits: Sequence[str],
    *configs: str,
    more: Sequence[str] = (),
) -> dict[str, DataSet]:
    origin = f"huggingface.co/datasets/{repo}"
    # MMLU has a folder for each of its configurations; other files may lie in the data folder too.
    own = configs[0] if configs else "data"
    folders = ("*/",) if len(configs) > 1 else ("", f"{own}/")
    return {
        split: DataSet(
            name,
            (*(f"{folder}{split}*" for folder in folders), *more),
            origin,
            tuple(Table(config, split) for config in configs or (None,)),
        )
        for split in splits
    }


TASKS: Mapping[str, ShortTask] = {
    "mmlu": ShortTask(
        folder="mmlu/default",
        shots=5,
        metric="acc",
        splits=_splits("mmlu", "cais/mmlu", ("dev", "test"), *MMLU_SUBJECTS),
        columns=("question", "choices", "answer"),
        num_questions=14_042,
        num_shown=285,
        requests=1,
        request_tokens=700,
        own_tokens=117,
    ),
    "hellaswag": ShortTask(
        folder="hellaswag",
        shots=10,
        metric="acc_norm",
        splits=_splits("hellaswag", "Rowan/hellaswag", ("train", "validation")),
        columns=("activity_label", "ctx_a", "ctx_b", "endings", "label"),
        num_questions=10_042,
        num_shown=39_905,
        requests=4,
        request_tokens=1000,
        own_tokens=273,
    ),
    "arc_challenge": ShortTask(
        folder="arc",
        shots=25,
        metric="acc_norm",
        splits=_splits("arc_challenge", "allenai/ai2_arc", ("train", "test"), "ARC-Challenge"),
        columns=("question", "choices", "answerKey"),
        num_questions=1_172,
        num_shown=1_119,
        requests=4,
        request_tokens=1250,
        own_tokens=318,
    ),
    "piqa": ShortTask(
        folder="piqa",
        shots=0,
        metric="acc",
        splits=_splits(
            "piqa", "baber/piqa", ("validation",), more=("valid.jsonl", "valid-labels.lst")
        ),
        columns=("goal", "sol1", "sol2", "label"),
        num_questions=1_838,
        requests=2,
        request_tokens=44,
    ),
    "triviaqa": ShortTask(
        folder="triviaqa",
        shots=5,
        metric="exact_match",
        splits=_splits(
            "triviaqa", "mandarjoshi/trivia_qa", ("train", "validation"), "rc.nocontext"
        ),
        columns=("question", "answer"),
        num_questions=17_944,
        num_shown=138_384,
        requests=1,
        request_tokens=200,
    ),
    "truthfulqa_mc2": ShortTask(
        folder="truthfulqa",
        shots=0,
        metric="acc",
        splits=_splits("truthfulqa", "truthfulqa/truthful_qa", ("validation",), "multiple_choice"),
        columns=("question", "mc2_targets"),
        num_questions=817,
        requests=7,
        request_tokens=240,
        own_tokens=23,
    ),
}


def read_split(
    task: ShortTask, split: str, folders: Folders, subject: str | None = None
) -> list[DataRow]:
    """Read all rows of a split, or of a subject's folder in it, in order.

    Raises DataError also if the files contain the split twice.
    """
    data_set = task.splits[split]
    files = data_set.files(folders)
    if subject is not None:
        files = [file for file in files if subject in (file.parent.name, file.stem)]
        if not files:
            raise data_set.missing(f"file {subject}/{split}*")
    labels = [file for file in files if file.suffix == ".lst"]
    if labels:
        return _published_piqa(files, labels[0], task.columns)
    if len({(file.parent, file.suffix) for file in files}) > 1:
        raise DataError(
            f"{files[0]} and {files[-1]}",
            f"the split {split!r} in two folders or formats",
            "a split in one folder and one format",
            "remove one of the two copies",
        )
    return [row for file in files for row in read_rows(file, task.columns)]


def _published_piqa(files: list[Path], labels: Path, columns: Sequence[str]) -> list[DataRow]:
    texts = [file for file in files if file != labels]
    if len(texts) != 1:
        raise DataError(
            labels,
            f"{len(texts)} files of questions beside these labels",
            "exactly one",
            "keep only valid.jsonl and valid-labels.lst, or only the hub's file",
        )
    rows = list(read_rows(texts[0], [column for column in columns if column != "label"]))
    values = read_text(labels).split()
    wrong = [value for value in values if value not in ("0", "1")]
    if len(values) != len(rows) or wrong:
        named = f", among them {wrong[0]!r}" if wrong else ""
        raise DataError(
            labels,
            f"{len(values)} labels for {len(rows)} questions{named}",
            f"the label 0 or 1 for each question of {texts[0].name}",
            "get both files again",
        )
    return [{**row, "label": int(value)} for row, value in zip(rows, values, strict=True)]
