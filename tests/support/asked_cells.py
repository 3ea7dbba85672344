"""Cells that were really asked, with the token ids that the decoder got; and made-up records.

A toy model of two training steps, and benchmarks that ask in words and in key tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from lce_core.store.artifacts import Store
from lce_core.store.cell_tables import SAMPLES, SAMPLES_FILE
from lce_core.store.identity import ID_DIGITS, sha256_file
from lce_core.store.records import RECORD, FileEntry, Record, sealed, write_json

STUDY = "asked"
LENGTH = 384
RECORDED = "recorded.json"
TASKS = ("single", "niah_multiquery", "niah_multikey_2", "code")
"""Of those of the benchmarks, the ones that are computed."""
BENCHMARKS: list[dict[str, Any]] = [
    {"name": "needle", "profile": "tiny", "lengths": [LENGTH], "trials": 1},
    {"name": "passkey", "profile": "fast", "lengths": [LENGTH], "num_samples": 3},
    {"name": "ruler", "profile": "tiny", "lengths": [LENGTH], "num_samples": 2},
    {"name": "perplexity", "profile": "tiny", "lengths": [128], "domains": ["code"]},
]


@dataclass(frozen=True)
class AskedStudy:
    """A finished study, and what its model was given."""

    home: Path
    recorded: Mapping[str, list[list[int]]]
    """Token ids of the prompts of each cell, in the order in which they were decoded."""

    @classmethod
    def of(cls, made_once: Callable[[str, Callable[[Path], None]], Path]) -> AskedStudy:
        """The study, run once in the whole suite; copy it before changing anything."""
        folder = made_once(STUDY, _run)
        return cls(folder / "home", json.loads((folder / RECORDED).read_text(encoding="utf-8")))

    def cell(self, benchmark: str, task: str = "") -> str:
        (found,) = (
            record.fingerprint[:ID_DIGITS]
            for _, record in Store(self.home).records()
            if record.kind == "cell"
            and record.spec["benchmark"]["name"] == benchmark
            and task in ("", record.spec["task"])
        )
        return found


def _run(folder: Path) -> None:
    from catalog.build import build_catalog
    from flows.settings import make_execution
    from lce_core.evaluation import decoding
    from lce_core.runners import Runner
    from lce_core.study.plan import compile_study
    from lce_core.study.study_file import parse_study
    from tests.support.studies import TINY, library_text

    text = folder / "text"
    library_text(text)
    study = TINY | {
        "study": STUDY,
        "base_models": [{"name": "toy_llama", "steps": 2}],
        "methods": [{"name": "none"}],
        "target_context": LENGTH,
        "benchmarks": BENCHMARKS,
    }
    plan = compile_study(parse_study(yaml.safe_dump(study), "test"), {"text": text})
    options = {"home": folder / "home", "device": "cpu", "data_folders": {"text": text}}
    store, recorded = Store(folder / "home"), dict[str, list[list[int]]]()
    store.prepare()
    runner = Runner(store, make_execution(options), lambda event: None)
    generate, given = decoding.generate, list[list[int]]()

    def noting(model: Any, prompts: Any, **how: Any) -> Any:
        given.extend(np.asarray(prompt).tolist() for prompt in prompts)
        return generate(model, prompts, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "generate", noting)
        for step in plan.steps.values():
            if step.axes.get("task", TASKS[0]) not in TASKS:
                continue
            given.clear()
            assert runner.ensure(step) == "computed"
            recorded[step.id] = [list(ids) for ids in given]
    store.studies.save_plan(STUDY, plan.to_json(), "asked.yaml")
    build_catalog(store)
    write_json(folder / RECORDED, recorded)


def rewrite_record(home: Path, cell: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a record of a store and seal it again, as defective code would."""
    (file,) = home.glob(f"artifacts/cell/*-{cell}/{RECORD}")
    record = json.loads(file.read_text(encoding="utf-8"))
    change(record)
    write_json(file, sealed(record))


def write_artifact(home: Path, kind: str, fingerprint: str, **fields: Any) -> Path:
    """Writes the record of an artifact over the files that lie in its folder; gives the folder."""
    folder = home / "artifacts" / kind / f"made-{fingerprint[:ID_DIGITS]}"
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        file.name: FileEntry(bytes=file.stat().st_size, sha256=sha256_file(file))
        for file in sorted(folder.iterdir())
        if file.name != RECORD
    }
    made = {"spec": {}, "parents": {}, "axes": {}, "result": {}, "execution": {}} | fields
    record = Record(
        kind=kind,
        name="made",
        fingerprint=fingerprint,
        lineage={},
        files=files,
        environment={},
        started_at="2026-01-01T00:00:00+00:00",
        finished_at="2026-01-01T00:00:01+00:00",
        seconds=1.0,
        attempts=1,
        **made,
    )
    record.write(folder)
    return folder


def write_samples(folder: Path, *rows: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.Table.from_pylist([dict(row) for row in rows], SAMPLES), folder / SAMPLES_FILE
    )
