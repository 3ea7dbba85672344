"""Catalogs of made-up cells, done or not, written without a store: for tests of means."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from catalog.build import write_tables
from lce_core.benchmarks import BENCHMARKS

TARGET = 512
"""Context in tokens that the methods of every study extend to."""
LOWER_IS_BETTER = {"perplexity"}
HOLES = {
    "failed": "non_finite: got NaN",
    "missing": "not run yet",
    "unavailable": "beyond its reach",
}
"""Status of a cell that is not done, and its reason."""


@dataclass(frozen=True)
class Cell:
    method: str
    frozen: bool
    seed: int
    benchmark: str
    task: str
    eval_length: int
    status: str
    value: float = 0.0
    profile: str = "tiny"


def written(folder: Path, drawn: list[list[Cell]]) -> Path:
    """The catalog of a home, with these studies: study-0, study-1, ..."""
    known: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("study", "cell", "score", "token_nll")
    }
    for number, cells in enumerate(drawn):
        name = f"study-{number}"
        known["study"].append(
            {
                "study": name,
                "hypothesis": "h",
                "target_context": TARGET,
                "base_model": "toy_llama",
                "trained_context": 128,
                "match": "tokens",
                "arguments": name,
            }
        )
        for position, cell in enumerate(cells):
            row = asdict(cell)
            value, short = row.pop("value"), f"{number:06}{position:06}"
            known["cell"].append(
                {
                    **row,
                    "study": name,
                    "position": position,
                    "cell": short,
                    "base_model": "toy_llama",
                    "kind": BENCHMARKS.load(cell.benchmark).kind,
                    "exact_attention": True,
                    "reason": HOLES.get(cell.status),
                    "attempts": 1,
                }
            )
            if cell.status == "done":
                higher = cell.benchmark not in LOWER_IS_BETTER
                score = {"cell": short, "num_samples": 8, "higher_is_better": higher}
                unit = "accuracy" if higher else "perplexity"
                known["score"] += [
                    {**score, "metric": unit, "value": value, "is_default": True, "unit": unit},
                    {**score, "metric": "other", "value": 9.0, "is_default": False, "unit": unit},
                ]
                known["token_nll"].append({"cell": short, "position_bin": 0, "nll": value})
    path = folder / "catalog.duckdb"
    write_tables({name: pa.Table.from_pylist(rows) for name, rows in known.items() if rows}, path)
    return path
