"""Mean of each method over seeds, with an interval that covers other seeds and prompts.

A cell's own interval (view `scores`) is a bootstrap, which is too narrow for few documents, or
Wilson's. Reports show the intervals of this module.
"""

import math
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catalog import grouped
from catalog.comparisons.samples import Cell, fields_of
from lce_core.statistics.clustered import clustered_mean, mean_over_seeds
from lce_core.statistics.contrasts import FEWEST_CLUSTERS

_AXES = ("study", "base_model", "benchmark", "task", "profile", "eval_length")
UNIT_RANGES = {"accuracy": (0.0, 1.0), "percent": (0.0, 100.0), "perplexity": (1.0, math.inf)}
"""Lowest and highest value of a unit; intervals end there. Scores in other units have no range."""


def seed_means(cells: list[Cell]) -> Iterator[dict[str, Any]]:
    """Yield one row of `compared.mean_over_seeds` per method, task and length with all seeds done.

    Omits those whose value `aggregation_of` cannot explain, and those whose seeds should have the
    same documents but do not.
    """
    for own in grouped(cells, attrgetter("method", *_AXES)).values():
        first = own[0]
        # Seeds with the same cell id share one result: count it as one run.
        own = list({cell.name: cell for cell in own}.values())
        if any(cell.aggregation is None or cell.aggregation != first.aggregation for cell in own):
            continue
        documents, scores = zip(*map(_by_document, own), strict=True)
        if not first.seeded and any(one != documents[0] for one in documents):
            continue
        found = mean_over_seeds(scores, same_prompts=not first.seeded)
        low, high = _of_one_run(first) if len(own) == 1 else (found.low, found.high)
        if len(documents[0]) < FEWEST_CLUSTERS and (len(own) == 1 or not first.seeded):
            low, high = None, None
        least, most = UNIT_RANGES.get(first.unit or "", (-math.inf, math.inf))
        yield {
            **fields_of(first, "method", *_AXES, "metric", "unit", "higher_is_better"),
            "value": found.value,
            "ci_low": None if low is None else max(low, least),
            "ci_high": None if high is None else min(high, most),
            "num_seeds": found.num_seeds,
            "seed_sd": found.seed_sd,
            "document_sd": found.document_sd,
            "num_documents": len(documents[0]),
        }


def _of_one_run(cell: Cell) -> tuple[float | None, float | None]:
    """Return the 95 % interval of a cell's value over documents, or over independent prompts."""
    found = clustered_mean(cell.averaged, cell.clusters())
    if found.low is None or found.high is None or cell.aggregation != "power of mean":
        return found.low, found.high
    return math.exp(found.low), math.exp(found.high)


def _by_document(cell: Cell) -> tuple[list[Any], NDArray[np.float64]]:
    """Return the names of a cell's documents (or prompts), sorted, and a contribution of each.

    The mean of the contributions equals the cell's value, even if documents differ in size. Their
    spread gives the value's standard error to first order, also for perplexities (delta method).
    """
    assert cell.scored is not None
    scores = cell.averaged
    slope = float(np.exp(scores.mean())) if cell.aggregation == "power of mean" else 1.0
    value = slope if cell.aggregation == "power of mean" else float(scores.mean())
    beyond = scores - scores.mean()
    if all(name is None for name in cell.scored.clusters):
        order = np.argsort(cell.scored.samples)
        return cell.scored.samples[order].tolist(), value + slope * beyond[order]
    added: dict[Any, float] = {}
    for name, score in zip(cell.clusters(), beyond.tolist(), strict=True):
        added[name] = added.get(name, 0.0) + score
    names = sorted(added, key=repr)
    parts = np.array([added[name] for name in names])
    return names, value + slope * parts * len(names) / scores.size
