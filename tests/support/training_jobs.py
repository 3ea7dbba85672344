"""Training jobs on a small toy base, and their results, for the tests of training."""

import json
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.state import AcceleratorState
from safetensors.torch import load_file

from lce_core.corpora import Corpus, Document, Split
from lce_core.data.packing import pack_rows
from lce_core.extension.learned import LEARNED
from lce_core.models import MODELS, LanguageModel
from lce_core.recipe import Training, Upsampling
from lce_core.training.job import TrainingJob
from lce_core.training.run import run

ROW_LENGTH = 64
ROWS_PER_STEP = 8
BASE = MODELS.load("toy_llama")()


class Words(Corpus):
    """Random words: enough for a loss to fall."""

    def domains(self) -> tuple[str, ...]:
        return ("prose",)

    def documents(self, split: Split, folders: Mapping[str, Path]) -> Iterator[Document]:
        rng = np.random.default_rng(len(split))
        for number in range(40):
            words = rng.choice(["key", "table", "row", "model", "of", "the"], size=120)
            yield Document(f"{split}-{number}", "prose", " ".join(words))


class InterruptedRunError(Exception):
    """Stands for whatever ends a run in the middle."""


def packed_rows(
    out: Path, corpus: Corpus | None = None, row_length: int = ROW_LENGTH, **how: Any
) -> Path:
    """Pack 20 rows into an existing folder."""
    pack_rows(
        corpus or Words(),
        BASE,
        BASE.tokenizer(None),
        row_length=row_length,
        num_rows=20,
        upsampling=Upsampling(),
        seed=0,
        folders={},
        out=out,
        report=lambda done: None,
        **how,
    )
    return out


def training_job(base: LanguageModel, folder: Path, length: int, **fields: Any) -> TrainingJob:
    """Return a run from random weights, without a method, on rows of `length` tokens."""
    common = {
        "base_model": base.identity(),
        "method": None,
        "from_scratch": True,
        "base_folder": None,
        **{name: folder / name for name in ("rows", "out", "resume")},
        "seed": 0,
        "row_length": length,
        "target_context": length,
    }
    return TrainingJob(**common | fields)


def job_maker(rows: Path, folder: Path) -> Any:
    """A function of training settings and job fields that gives jobs with folders of their own."""
    numbers = count()

    def make(training: dict[str, Any] | None = None, **changes: Any) -> TrainingJob:
        out = folder / f"out-{next(numbers)}"
        out.mkdir()
        settings: dict[str, Any] = {
            "learning_rate": 2e-3,
            "tokens_per_step": ROWS_PER_STEP * ROW_LENGTH,
            "warmup_steps": 2,
            "schedule": "cosine",
            "weight_decay": 0.1,
        }
        fields: dict[str, Any] = {
            "training": Training(**(settings | (training or {}))),
            "rows": rows,
            "num_steps": 6,
            "out": out,
            "resume": folder / f"resume-{out.name}",
            "device": "cpu",
        }
        return training_job(BASE, folder, ROW_LENGTH, **fields | changes)

    return make


def silent(row: dict[str, Any]) -> None:
    pass


def run_alone(job: TrainingJob) -> dict[str, Any]:
    """Run a job as the first of its process: Accelerate keeps the device of the first one."""
    AcceleratorState._reset_state(reset_partial_state=True)
    return run(job, silent)


def log(job: TrainingJob) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (job.out / "loss.jsonl").read_text().splitlines()]


def losses(job: TrainingJob) -> list[float]:
    return [row["loss"] for row in log(job)]


def save_base(folder: Path) -> Path:
    BASE.initialise(3).save_pretrained(folder)
    BASE.tokenizer(None).save_pretrained(folder)
    return folder


def weights(job: TrainingJob) -> dict[str, torch.Tensor]:
    return load_file(job.out / "model" / "model.safetensors")


def checkpoint(job: TrainingJob) -> dict[str, torch.Tensor]:
    """All tensors of a finished job, those of a method's network among them."""
    network = job.out / "model" / LEARNED
    return weights(job) | (load_file(network) if network.is_file() else {})
