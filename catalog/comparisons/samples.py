"""Planned cells with the scores of their prompts, and how a cell's value follows from the scores.

The catalog has no knowledge of benchmarks. It infers from the numbers whether a value is the mean
of its samples (an accuracy or a mean loss), the exponential of their mean (a perplexity) or the
mean of their exponentials (over documents). Cells whose value is none of these, such as means
weighted by tokens or subjects, are not compared.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import duckdb
import numpy as np
from numpy.typing import NDArray

from lce_core.kinds import CONTROLS, WORDINGS
from lce_core.store.cell_tables import METRICS_IN_NATS
from lce_core.study.variants import CONTROL

BASE = (CONTROL, True)
"""Method label and frozen flag of the unmodified base model."""
Aggregation = Literal["mean", "power of mean", "mean of powers"]
Method = tuple[str, bool]
"""Method label and whether the weights are frozen."""

_TOLERANCE = 1e-4
_CELLS = """
    SELECT
        c.study, c.base_model, c.method, c.frozen, c.exact_attention, c.seed, c.benchmark, c.task,
        c.profile, c.eval_length, c.family AS method_family, c.cell AS name, c.checkpoint,
        s.metric, s.value, s.unit, s.higher_is_better, t.trained_context,
        coalesce(json_extract(a.spec, '$.seed') IS NOT NULL, true) AS seeded
    FROM store.cell c
    LEFT JOIN store.score s ON s.cell = c.cell AND c.status = 'done'
        AND CASE WHEN $metric IS NULL THEN s.is_default ELSE s.metric = $metric END
    LEFT JOIN store.artifact a ON a.artifact = c.cell
    LEFT JOIN store.study t ON t.study = c.study AND t.base_model = c.base_model
    WHERE $metric IS NULL OR (c.study, c.benchmark) IN (
        SELECT (study, benchmark) FROM expectations WHERE metric = $metric
    )
    ORDER BY c.study, c.position
"""
_SAMPLES = """
    SELECT cell, sample, {column} AS score, cluster, no_context, local_context FROM store.sample
    WHERE {column} IS NOT NULL
    ORDER BY cell, sample
"""


@dataclass(frozen=True, eq=False)
class SampleScores:
    """Scores of a done cell's prompts: three arrays of equal length, sorted by sample number."""

    samples: NDArray[np.int64]
    scores: NDArray[np.float64]
    clusters: NDArray[np.object_]
    """Name of the document that each prompt was built from; None if it shares none with others."""
    controls: Mapping[str, NDArray[np.float64]]
    """Scores of control prompts by the control's name; NaN if not measured."""


@dataclass(frozen=True, eq=False)
class Cell:
    """A planned cell: one method evaluated on one task at one length with one seed."""

    name: str | None
    """Cell id; equal in all studies and seeds that share the result. None if the cell is
    unavailable."""
    checkpoint: str | None
    """Id of the evaluated weights: one per training run, and one for all seeds if none trained."""
    study: str
    base_model: str
    method: Method
    exact_attention: bool
    seed: int
    benchmark: str
    task: str
    profile: str | None
    eval_length: int
    trained_context: int | None
    metric: str | None
    value: float | None
    """Value of the default metric; None unless done."""
    unit: str | None
    higher_is_better: bool | None
    """Direction of the default metric; None unless done."""
    seeded: bool
    """True if the prompts depend on the seed; also True if the cell has no record yet."""
    scored: SampleScores | None
    method_family: str | None
    """Family of the method, such as "interpolation"; None if its plug-in is not installed."""
    aggregation: Aggregation | None
    """Rule by which `value` follows from the scores of its samples; None if unknown or without
    scores."""
    is_default: bool = True
    """True if `metric` is the benchmark's default metric."""

    @property
    def part(self) -> tuple[str, int]:
        """Task and seed; comparisons match the cells of two methods by these."""
        return self.task, self.seed

    @property
    def averaged(self) -> NDArray[np.float64]:
        """Numbers whose mean is `value`, or its logarithm if `aggregation` is "power of mean"."""
        assert self.scored is not None
        scores = self.scored.scores
        return np.exp(scores) if self.aggregation == "mean of powers" else scores

    def clusters(self) -> list[tuple[Any, ...]]:
        """Return a cluster name for each sample; samples with equal names are resampled together.

        It names the document, or the prompt if there is no document. Cells of other seeds give
        equal names only if their prompts do not depend on the seed, cells of other tasks only if
        they ask for the same in other words.
        """
        assert self.scored is not None
        task = WORDINGS[0] if self.task in WORDINGS else self.task
        own = (task, self.seed) if self.seeded else (task,)
        return [
            (*own, number) if name is None else (task, name)
            for number, name in zip(self.scored.samples, self.scored.clusters, strict=True)
        ]


def read_cells(connection: duckdb.DuckDBPyConnection) -> list[Cell]:
    """Return all planned cells in the order of their studies' plans, with the default metric.

    Cells whose other metrics an expectation names follow, once per metric.
    """
    named = connection.execute("SELECT DISTINCT metric FROM expectations ORDER BY metric")
    metrics = [metric for (metric,) in named.fetchall() if metric in METRICS_IN_NATS]
    cells = []
    for metric in (None, *metrics):
        scored = _sample_scores(connection, metric or "score")
        found = connection.execute(_CELLS, {"metric": metric})
        names = [column[0] for column in found.description or ()]
        for row in found.fetchall():
            cell = _cell(dict(zip(names, row, strict=True)), scored)
            cells.append(cell if metric is None else replace(cell, metric=metric, is_default=False))
    return cells


def fields_of(one: object, *names: str) -> dict[str, Any]:
    """Return fields as columns of a row; `method` gives the columns method and frozen."""
    columns = {name: getattr(one, name) for name in names}
    if "method" in columns:
        columns["method"], columns["frozen"] = columns["method"]
    return columns


def _sample_scores(connection: duckdb.DuckDBPyConnection, column: str) -> dict[str, SampleScores]:
    found = connection.execute(_SAMPLES.format(column=column)).fetchnumpy()
    cells = np.asarray(found["cell"], dtype=object)
    if not cells.size:
        return {}
    named = np.ma.asarray(found["cluster"])
    clusters = np.ma.getdata(named).astype(object)
    clusters[np.ma.getmaskarray(named)] = None
    samples, scores = np.asarray(found["sample"]), np.asarray(found["score"])
    controls = {
        name: np.ma.filled(np.ma.asarray(found[name]).astype(np.float64), np.nan)
        for name in CONTROLS
    }
    starts = [0, *(np.flatnonzero(cells[1:] != cells[:-1]) + 1).tolist(), cells.size]
    return {
        str(cells[start]): SampleScores(
            samples[start:end].astype(np.int64),
            scores[start:end].astype(np.float64),
            clusters[start:end],
            {name: values[start:end] for name, values in controls.items()},
        )
        for start, end in pairwise(starts)
    }


def _cell(row: dict[str, Any], scored: Mapping[str, SampleScores]) -> Cell:
    found = scored.get(row["name"]) if row["value"] is not None else None
    method = row.pop("method"), row.pop("frozen")
    rule = None if found is None else aggregation_of(found.scores, row["value"])
    return Cell(method=method, scored=found, aggregation=rule, **row)


def aggregation_of(scores: NDArray[np.float64], value: float) -> Aggregation | None:
    """Return the first rule that reproduces a cell's value from its samples; None if none does."""
    if not np.isfinite(scores).all() or not math.isfinite(value):
        return None
    with np.errstate(over="ignore"):
        candidates: dict[Aggregation, float] = {
            "mean": float(scores.mean()),
            "power of mean": float(np.exp(scores.mean())),
            "mean of powers": float(np.exp(scores).mean()),
        }
    return next(
        (
            aggregation
            for aggregation, number in candidates.items()
            if math.isclose(number, value, rel_tol=_TOLERANCE, abs_tol=1e-9)
        ),
        None,
    )
