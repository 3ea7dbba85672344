"""Count false findings in whole studies without a true difference: null copies of `smoke`.

The script runs `smoke` with three seeds, expectations and 18 documents instead of 2. A copy draws
its documents with replacement and exchanges the methods' losses of each document and seed, so that
no method is better. Beyond the trained context a constant moves the mean loss to the threshold of
the effective length. The tiny models of `smoke` answer no prompt, so all methods get the same
probability of a right answer, drawn for each prompt. The copies are studies of one catalog with all
comparisons, and false findings are counted in its views. Copies at the margin have losses 2 % above
the base model's, so that "not worse by more than 2 %" should stay undecided.
"""

import math
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from large_catalog import score_and_samples
from measuring import Row, measure, timed
from numpy.typing import NDArray

from catalog import grouped
from catalog.build import write_tables
from catalog.comparisons.lengths import LOST
from catalog.comparisons.pairs import EXPLORATORY, PRIMARY, SHORT_CONTEXT
from catalog.comparisons.samples import BASE, Cell, read_cells
from catalog.extraction import extract, history
from catalog.queries import open_catalog
from lce.api import run
from lce_core.store.artifacts import Store
from tests.support.studies import SMOKE, write_study

Numbers = NDArray[np.float64]
EXPECTS = [
    {"better": "yarn-tuned", "than": ["none", "self_extend"], "benchmark": "perplexity"},
    {"worse": "none", "than": ["yarn-tuned", "self_extend"], "benchmark": "passkey"},
    {"predicts": "perplexity", "among": ["none", "self_extend", "yarn-tuned"],
     "benchmark": "passkey", "lengths": [256]},
]  # fmt: skip
MARGIN = 0.02
"""Largest disadvantage within the trained context that every study expects, as a fraction."""

FINDINGS = """
    SELECT study, family FROM paired_difference
    WHERE verdict IN ('better', 'worse') AND (generalises_to <> 'one training run' OR $ratio = 0)
    UNION
    SELECT study, coalesce(family, 'predicts') FROM expectations
    WHERE outcome = 'contradicted' OR (outcome = 'confirmed' AND margin IS NULL)
"""
"""Studies and families with a false finding. A difference on one run of several that vary is true.
"""
MARGINS = """
    SELECT DISTINCT study, family FROM expectations
    WHERE benchmark = 'perplexity' AND margin IS NOT NULL
        AND outcome IN ('confirmed', 'contradicted')
"""
"""Studies and families with a false finding at the margin, where differences from 0 are real."""
LENGTHS = "SELECT ci_low, ci_high FROM effective_length WHERE unit = 'perplexity'"
"""A bound that excludes one of the two lengths is wrong: the loss is at the threshold."""
FAMILIES = (PRIMARY, "predicts", SHORT_CONTEXT, EXPLORATORY)


class Kind(NamedTuple):
    """Copies that share a row of the table."""

    name: str
    num_seeds: int = 3
    ratio: float = 0.0
    """Standard deviation between training runs, in standard errors of a mean over documents."""
    at_margin: bool = False


KINDS = (
    Kind("one seed", num_seeds=1),
    Kind("one seed, runs vary", num_seeds=1, ratio=3.0),
    Kind("three seeds"),
    Kind("three seeds, runs vary", ratio=3.0),
    Kind("three seeds, at the margin", at_margin=True),
)


def rows(options: Namespace) -> Iterator[Row]:
    """Yield the shares of false findings of each kind of copies."""
    home = compute(options.folder / "home")
    for kind in KINDS:
        timing = timed(partial(shares, home, kind, options))
        yield {"copies": kind.name, **timing.result, "CPU s": timing.cpu}


def compute(home: Path) -> Path:
    """Run `smoke` with three seeds and expectations in `home`."""
    home.mkdir()
    evaluation = SMOKE["evaluation"] | {"held_out_document_tokens": 1024}
    changes = {"seeds": [0, 1, 2], "expects": EXPECTS, "evaluation": evaluation}
    with redirect_stdout(sys.stderr):
        run(write_study(home, SMOKE, **changes), home=home)
    return home


def shares(home: Path, kind: Kind, options: Namespace) -> Row:
    """Return the share of copies with a false finding in each family, and of wrong lengths."""
    store, rng = Store(home), np.random.default_rng(options.seed)
    tables, past = extract(store), history(store)
    planned = tables["cell"]
    planned = planned.filter(pc.less(planned["seed"], kind.num_seeds))
    with open_catalog(home / "catalog.duckdb") as connection:
        cells = [cell for cell in read_cells(connection) if cell.seed < kind.num_seeds]
    copied = {name: tables[name] for name in ("study", "expectation", "artifact")}
    copied |= {"cell": planned, "registration": past["registration"]}
    copies: dict[str, list[pa.Table]] = {}
    for number in range(options.copies):
        for name, rows in {**copied, **scores_and_samples(cells, kind, rng)}.items():
            copies.setdefault(name, []).append(renamed(rows, number))
    joined = {name: pa.concat_tables(rows) for name, rows in copies.items()}
    registered = {"registration": joined.pop("registration")}
    path = options.folder / "copies.duckdb"
    write_tables(joined, path, registered)
    with open_catalog(path) as connection:
        query, names = (MARGINS, {}) if kind.at_margin else (FINDINGS, {"ratio": kind.ratio})
        found = Counter(family for _, family in connection.execute(query, names).fetchall())
        wrong = [low == high for low, high in connection.execute(LENGTHS).fetchall()]
    figures = {family: f"{100 * found[family] / options.copies:.1f} %" for family in FAMILIES}
    if kind.at_margin:
        figures = {**dict.fromkeys(FAMILIES, ""), SHORT_CONTEXT: figures[SHORT_CONTEXT]}
    # Runs that vary say nothing about one of them.
    is_known = not kind.at_margin and (kind.num_seeds > 1 or not kind.ratio)
    return {**figures, "effective lengths": f"{100 * np.mean(wrong):.1f} %" if is_known else ""}


def renamed(rows: pa.Table, number: int) -> pa.Table:
    """Return rows of a study and cells of their own, so that one catalog has all copies."""
    for name in ("study", "cell", "artifact"):
        if name in rows.column_names:
            names = pc.binary_join_element_wise(str(number), rows[name], "-")
            rows = rows.set_column(rows.column_names.index(name), name, names)
    return rows


def scores_and_samples(
    cells: list[Cell], kind: Kind, rng: np.random.Generator
) -> dict[str, pa.Table]:
    """Draw the tables `score` and `sample` of a null copy."""
    found = [
        score_and_samples(cell.name, cell.metric, cell.unit, cell.eval_length, values, documents)
        for cell, values, documents in drawn(cells, kind, rng)
    ]
    scores, samples = zip(*found, strict=True)
    return {"score": pa.Table.from_pylist(scores), "sample": pa.concat_tables(samples)}


def drawn(
    cells: list[Cell], kind: Kind, rng: np.random.Generator
) -> Iterator[tuple[Cell, Numbers, list[str | None]]]:
    """Yield each cell with the scores of a null copy and the names of their documents."""
    deviations = {cell.checkpoint: kind.ratio * rng.normal() for cell in cells}
    losses = [cell for cell in cells if cell.unit == "perplexity"]
    means = {
        length: float(np.mean([cell.scored.scores.mean() for cell in own]))
        for length, own in grouped(losses, attrgetter("eval_length")).items()
    }
    for of_length in grouped(cells, attrgetter("benchmark", "task", "eval_length")).values():
        first, documents = of_length[0], None
        trained = first.trained_context or 0
        for of_seed in grouped(of_length, attrgetter("seed")).values():
            scores = np.stack([cell.scored.scores for cell in of_seed])
            names = of_seed[0].clusters()
            places = np.array([names.index(name) for name in names])
            if documents is None or first.seeded:
                documents = rng.choice(np.unique(places), size=len({*names}))
            rows = [np.flatnonzero(places == place) for place in documents]
            error = 0.0
            if first.unit == "accuracy":
                scores = (rng.random(scores.shape) < rng.random(scores.shape[1])).astype(np.float64)
            else:
                error = math.sqrt(scores.var(axis=0, ddof=1).mean() / len(rows))
            exchanged = np.concatenate([rng.permutation(scores)[:, own] for own in rows], axis=1)
            numbers = np.repeat(np.arange(len(rows)), [len(own) for own in rows])
            is_single = first.scored.clusters[0] is None
            labels = [None if is_single else str(number) for number in numbers]
            for cell, values in zip(of_seed, exchanged, strict=True):
                values = values + error * deviations[cell.checkpoint]
                if cell.unit == "perplexity" and cell.eval_length > trained:
                    values += means[trained] + math.log(LOST) - means[cell.eval_length]
                elif cell.unit == "perplexity" and kind.at_margin and cell.method != BASE:
                    values += math.log1p(MARGIN)
                yield cell, values, labels


if __name__ == "__main__":
    measure(__doc__, rows, copies=200, seed=0)
