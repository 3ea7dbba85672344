"""A toy request for the short-context suite, and made-up data sets in the hub's columns."""

from pathlib import Path
from typing import Any

import lm_eval
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from lm_eval.api.instance import Instance

from lce_core.benchmarks import CellRequest
from lce_core.benchmarks.short_context.data import TASKS
from tests.support.cells import benchmark, request
from tests.support.data.subsets import state_rows

WORDS = ("the", "ship", "left", "port", "while", "rain", "fell", "on", "seven", "quiet", "hills")


def toy_request(length: int = 1024, method: str = "none", **changes: Any) -> CellRequest:
    return request(benchmark("short_context"), length, method, **{"task": "piqa", **changes})


def instances(kind: str, arguments: list[tuple[Any, ...]]) -> list[Instance]:
    return [Instance(kind, {}, given, index) for index, given in enumerate(arguments)]


def subjects() -> list[str]:
    folder = Path(lm_eval.__file__).parent / "tasks" / "mmlu" / "default"
    texts = [file.read_text(encoding="utf-8") for file in folder.glob("mmlu_*.yaml")]
    return sorted(yaml.safe_load(text)["dataset_name"] for text in texts)


def row_of(task: str, number: int) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    words = [str(word) for word in rng.choice(WORDS, size=6)]
    question, four = f"{words[0]} {words[1]} {number}", [f"{word} {number}" for word in words[2:]]
    rows: dict[str, dict[str, Any]] = {
        "mmlu": {"question": question, "choices": four, "answer": number % 4},
        "hellaswag": {
            "activity_label": "Sailing",
            "ctx_a": question,
            "ctx_b": "a sailor",
            "endings": four,
            "label": str(number % 4),
        },
        "arc_challenge": {
            "question": question,
            "choices": {"text": four, "label": ["A", "B", "C", "D"]},
            "answerKey": "ABCD"[number % 4],
        },
        "piqa": {"goal": question, "sol1": four[0], "sol2": four[1], "label": number % 2},
        "triviaqa": {"question": question, "answer": {"aliases": four[:2], "value": four[0]}},
        "truthfulqa_mc2": {
            "question": question,
            "mc2_targets": {"choices": four, "labels": [1, 1, 0, 0]},
        },
    }
    return rows[task]


def write_rows(file: Path, rows: list[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), file)


def made_up(task: str, folder: Path, num_questions: int = 30) -> dict[str, Path]:
    """A data set in the layout of the hub's repository; 2 and 5 rows a subject of MMLU."""
    if task == "mmlu":
        for subject in subjects():
            for split, count in (("test", 2), ("dev", 5)):
                rows = [row_of(task, number) for number in range(count)]
                write_rows(folder / subject / f"{split}-00000-of-00001.parquet", rows)
        state_rows(folder, {"test": 2 * len(subjects()), "dev": 5 * len(subjects())})
    else:
        home = {"arc_challenge": "ARC-Challenge", "hellaswag": "data"}.get(task, ".")
        splits = [*TASKS[task].splits]
        for offset, split in enumerate(splits):
            count = num_questions if split == splits[-1] else 30
            rows = [row_of(task, number + 100 * offset) for number in range(count)]
            write_rows(folder / home / f"{split}-00000-of-00001.parquet", rows)
            state_rows(folder, {split: count})
    (name,) = {data_set.name for data_set in TASKS[task].splits.values()}
    return {name: folder}
