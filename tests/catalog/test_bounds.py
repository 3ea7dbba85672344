"""No number of a catalog leaves its range, however near its end the scores lie.

Strategy: scores near their bounds, for which unbounded intervals would leave the range.
"""

import math
import random

import duckdb

from catalog.comparisons.seeds import UNIT_RANGES
from tests.support.catalogs.answered_catalog import Answered, written

NAMES = {
    "spearman": (-1.0, 1.0),
    "kendall": (-1.0, 1.0),
    "p_value": (0.0, 1.0),
    "p_adjusted": (0.0, 1.0),
    "level": (0.0, 1.0),
}
"""Range of every column whose name begins so."""


def cells(draw: random.Random) -> list[Answered]:
    found = []
    for number, method in enumerate(("none", "pi", "yarn", "ntk_frozen", "self_extend", "rerope")):
        for seed in range(3):
            for length in (128, 256, 512):
                right = [float(draw.random() < (0.02, 0.98)[number % 2]) for _ in range(12)]
                value = sum(right) / 12
                axes = (method, method == "none", seed)
                found.append(Answered(*axes, "passkey", "single", length, right, value=value))
                losses = [abs(draw.gauss(0, 0.02)) for _ in range(12)]
                found.append(
                    Answered(
                        *axes, "perplexity", "code", length, losses, unit="perplexity",
                        value=math.exp(sum(losses) / 12), seeded=False,
                    )
                )  # fmt: skip
    return found


def test_intervals_correlations_and_probabilities_stay_within_their_range(tmp_path):
    checked, at_an_end = set(), 0
    with duckdb.connect(str(written(tmp_path / "c.duckdb", cells(random.Random(5))))) as catalog:
        main = "SELECT view_name FROM duckdb_views() WHERE NOT internal AND schema_name = 'main'"
        views = catalog.execute(main).fetchall()
        for (view,) in views:
            for row in catalog.sql(f'FROM "{view}"').df().to_dict("records"):
                means = UNIT_RANGES.get(row.get("unit"), None) if "difference" not in row else None
                for name, value in row.items():
                    limits = means if name in ("ci_low", "ci_high", "value") else None
                    limits = next((NAMES[key] for key in NAMES if name.startswith(key)), limits)
                    if limits and isinstance(value, float) and not math.isnan(value):
                        assert limits[0] <= value <= limits[1], (view, name, row)
                        checked.add((view, name))
                        at_an_end += name in ("ci_low", "ci_high") and value in limits
    assert ("mean_over_seeds", "ci_high") in checked
    assert len(checked) > 12
    assert at_an_end > 6
