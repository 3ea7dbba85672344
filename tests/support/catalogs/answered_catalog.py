"""Catalogs of made-up answers to prompts, written without a store: for tests of comparisons."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from catalog.build import write_tables
from catalog.extraction import _score_rows
from lce_core.benchmarks import BENCHMARKS

BASE_MODEL, TRAINED = "toy_llama", 128


@dataclass(frozen=True)
class Answered:
    """A planned cell and what its prompts scored; not done if there are no scores."""

    method: str
    frozen: bool
    seed: int
    benchmark: str
    task: str
    eval_length: int
    scores: Sequence[float]
    value: float = 0.0
    clusters: Sequence[str | None] = ()
    """Empty: every prompt is its own."""
    samples: Sequence[int] = ()
    """Empty: numbered from 0."""
    depths: Sequence[float] = ()
    """Empty: the answers have no depth."""
    controls: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Scores of the control prompts, by the control's name."""
    kind: str = ""
    """What a benchmark measures that is not shipped; empty: as the shipped benchmark declares."""
    seeded: bool = True
    exact_attention: bool = True
    unit: str = "accuracy"
    extra: dict[str, Any] = field(default_factory=dict)
    result: str = ""
    """Cells with the same name share one result of one checkpoint; empty: a result of its own, and
    a training run per method and seed."""


def registrations(*versions: tuple[int, Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Rows of `history.registration`: versions as (results before, comparisons), a day apart."""
    first = datetime(2026, 1, 1)
    return [
        {
            "study": "s", "version": number, "registered_at": first + timedelta(days=number),
            "sha256": str(number), "results_before": results, "hypothesis": "h", **comparison,
        }
        for number, (results, comparisons) in enumerate(versions, start=1)
        for comparison in comparisons
    ]  # fmt: skip


def written(
    path: Path,
    cells: Sequence[Answered],
    *,
    hypothesis: str = "h",
    expects: Sequence[dict[str, Any]] = (),
    trained: int | None = TRAINED,
    registered: Sequence[dict[str, Any]] | None = None,
    looks: Sequence[int] | None = None,
    tested: Sequence[dict[str, Any]] = (),
    margins: Mapping[str, float] | None = None,
) -> Path:
    """The catalog of one study, `s`, with target context 512; `path` must be new.

    `expects` holds comparisons as in a plan, `registered` rows of `history.registration` (default:
    before any result), `tested` rows of `history.look`, and `margins` a mean of
    the metric `margin` by method.
    """
    if registered is None:
        versions = registrations((0, expects))
        registered = [row | {"looks": looks and list(looks)} for row in versions]
    study = {
        "study": "s", "hypothesis": hypothesis, "target_context": 512, "base_model": BASE_MODEL,
        "trained_context": trained, "looks": looks and list(looks), "match": "tokens",
        "arguments": "s",
    }  # fmt: skip
    rows: dict[str, list[dict[str, Any]]] = {"study": [study]}
    if expects:
        rows["expectation"] = [{"study": "s", **comparison} for comparison in expects]
    shared: set[str] = set()
    for position, cell in enumerate(cells):
        for table, found in _rows(cell.result or f"{position:012}", position, cell).items():
            if table == "cell" or cell.result not in shared:
                rows.setdefault(table, []).extend(found)
        shared |= {cell.result} - {""}
        if cell.method in (margins or {}):
            score = rows["score"][-1] | {
                "metric": "margin", "value": (margins or {})[cell.method], "higher_is_better": True,
            }  # fmt: skip
            result = {"scores": [score], "unit": cell.unit, "default_metric": cell.unit}
            holdings: Any = SimpleNamespace(records={score["cell"]: SimpleNamespace(result=result)})
            rows["score"] += _score_rows(score["cell"], holdings)
            own = rows["sample"][-len(cell.scores) :]
            spread = np.linspace(-0.1, 0.1, len(own))
            for sample, beyond in zip(own, spread, strict=True):
                sample["margin"] = float((margins or {})[cell.method] + beyond * len(cell.method))
    tables = {name: pa.Table.from_pylist(found) for name, found in rows.items()}
    history = {"registration": list(registered), "look": list(tested)}
    write_tables(tables, path, {name: pa.Table.from_pylist(own) for name, own in history.items()})
    return path


def _rows(short: str, position: int, cell: Answered) -> dict[str, list[dict[str, Any]]]:
    planned = {
        "study": "s", "position": position, "cell": short, "base_model": BASE_MODEL,
        "method": cell.method, "frozen": cell.frozen, "exact_attention": cell.exact_attention,
        "seed": cell.seed, "kind": cell.kind or BENCHMARKS.load(cell.benchmark).kind,
        "checkpoint": cell.result or f"{cell.method}-{cell.frozen}-{cell.seed}",
        "benchmark": cell.benchmark, "task": cell.task,
        "eval_length": cell.eval_length, "profile": "tiny", "attempts": 1,
        "status": "done" if len(cell.scores) else "missing",
        "reason": None if len(cell.scores) else "not run yet", **cell.extra,
    }  # fmt: skip
    if not len(cell.scores):
        return {"cell": [planned]}
    artifact = {
        "artifact": short, "kind": "cell", "name": short, "folder": short, "intact": True,
        "num_files": 1, "bytes": 1, "attempts": 1, "seconds": 1.0, "environment": "e",
        "spec": json.dumps({"seed": cell.seed} if cell.seeded else {}), "result": "{}",
        "execution": "{}", "started_at": pa.scalar(0, pa.timestamp("us")).as_py(),
        "created_at": pa.scalar(0, pa.timestamp("us")).as_py(),
    }  # fmt: skip
    score = {
        "cell": short, "metric": cell.unit, "value": cell.value, "unit": cell.unit,
        "num_samples": len(cell.scores), "higher_is_better": cell.unit == "accuracy",
        "is_default": True, "ci_low": None, "ci_high": None,
    }  # fmt: skip
    bare = [
        {**score, "metric": name, "value": float(np.mean(own)), "is_default": False}
        for name, own in cell.controls.items()
    ]
    clusters = cell.clusters or [None] * len(cell.scores)
    samples = cell.samples or range(len(cell.scores))
    depths = cell.depths or [None] * len(cell.scores)
    asked = [
        {"cell": short, "sample": number, "eval_length": cell.eval_length, "score": float(value),
         "cluster": cluster, "depth": depth,
         **{name: float(own[place]) for name, own in cell.controls.items()}}
        for place, (number, value, cluster, depth) in enumerate(zip(
            samples, cell.scores, clusters, depths, strict=True
        ))
    ]  # fmt: skip
    return {"cell": [planned], "artifact": [artifact], "score": [score, *bare], "sample": asked}
