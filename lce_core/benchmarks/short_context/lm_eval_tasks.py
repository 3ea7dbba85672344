"""Run and score tasks of lm-evaluation-harness on data in local folders; imports lm_eval."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lm_eval
from datasets import Dataset
from lm_eval.api.model import LM
from lm_eval.defaults import DEFAULT_OTHER_SEED
from lm_eval.tasks import TaskManager

from lce_core.benchmarks import spread
from lce_core.benchmarks.short_context.data import TASKS, Folders, read_split, require_rows
from lce_core.errors import DataError

# The harness warns about every data set that does not come from the hub.
logging.getLogger("lm_eval.api.task").setLevel(logging.ERROR)

Answered = dict[str, Any]
"""A question with its requests, responses and metrics, as logged by `lm_eval.evaluate`."""


def answered_questions(
    lm: LM, name: str, folders: Folders, num_samples: int | None
) -> list[tuple[str | None, Answered]]:
    """Evaluate a task and return (MMLU subject or None, answered question) in the data's order.

    `num_samples` questions are evenly spaced over the set; None for all.
    """
    tasks = _load(name, folders)
    wanted = None if num_samples is None else _places(tasks, num_samples)
    if wanted is not None:
        tasks = {task: loaded for task, loaded in tasks.items() if wanted[task]}
    result = lm_eval.evaluate(
        lm=lm, task_dict={"tasks": tasks}, samples=wanted, bootstrap_iters=0, log_samples=True
    )
    subjects = {task: loaded.config.dataset_name for task, loaded in tasks.items()}
    return [
        (subjects[task] if name == "mmlu" else None, question)
        for task in tasks
        for question in sorted(result["samples"][task], key=lambda logged: logged["doc_id"])
    ]


def _load(name: str, folders: Folders) -> dict[str, Any]:
    """Load the lm_eval task objects by their names: one object, or for MMLU one per subject."""
    task = TASKS[name]
    definitions = Path(lm_eval.__file__).parent / "tasks" / task.folder
    manager = TaskManager(include_defaults=False, include_path=str(definitions))
    members = [name] if name in manager.all_subtasks else manager.all_subtasks
    loaded: dict[str, Any] = {}
    rows: Counter[str] = Counter()
    for member in members:
        subject = None if member == name else manager.task_index[member].cfg["dataset_name"]
        changes = {
            "task": member,
            "custom_dataset": _reader(name, folders, subject, rows),
            "num_fewshot": task.shots,
        }
        if not task.shots:
            # Without this, the harness would read the training split even for zero shots.
            changes["training_split"] = None
        try:
            built = manager.load([{"group": "short_context", "task": [changes]}])
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise DataError(
                f"data of task {member!r}",
                f"{type(error).__name__}: {error}",
                f"rows with the columns and types of huggingface.co/datasets/{task.repo}",
                "get the data again from there",
            ) from error
        loaded |= built["tasks"]
    require_rows(task, folders, rows)
    for found in loaded.values():
        found.set_fewshot_seed(seed=DEFAULT_OTHER_SEED)
    return loaded


def _reader(
    name: str, folders: Folders, subject: str | None, found: Counter[str]
) -> Callable[..., dict[str, Dataset]]:
    """Return the function that lm_eval calls to read all splits; it adds their rows to `found`."""
    task = TASKS[name]

    def read(**_: Any) -> dict[str, Dataset]:
        rows = {split: read_split(task, split, folders, subject) for split in task.splits}
        found.update({split: len(rows[split]) for split in rows})
        return {split: Dataset.from_list(rows[split]) for split in rows}

    return read


def _places(tasks: Mapping[str, Any], num_samples: int) -> dict[str, list[int]]:
    sizes = {name: len(task.eval_docs) for name, task in tasks.items()}
    wanted = spread(sum(sizes.values()), num_samples)
    places, start = {}, 0
    for name, size in sizes.items():
        places[name] = [index - start for index in wanted if start <= index < start + size]
        start += size
    return places
