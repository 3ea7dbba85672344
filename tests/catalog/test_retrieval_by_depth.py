"""Keys by depth and distance, over tables filled by hand, of which every number can be read off."""

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from scipy import stats

import catalog.build
from catalog.comparisons.positions import retrieval_by_depth

SCHEMA = Path(catalog.build.__file__).parent / "sql" / "schema.sql"
MARGINS = np.array([[1.0, 3.0], [2.0, 2.0], [0.0, 1.0], [5.0, 3.0], [4.0, 4.0], [1.0, 0.0]])
"""Two questions about each of six documents."""


def rows(documents: int) -> list[dict[str, Any]]:
    """Rows over cells of two seeds. Each asks one question of a document at 30 and one at 100 %."""
    with duckdb.connect(":memory:") as connection:
        connection.execute(SCHEMA.read_text("utf-8"))
        for seed in (0, 1):
            connection.execute(
                "INSERT INTO store.cell BY NAME SELECT 's' AS study, 0 AS position, ? AS cell,"
                " 'toy' AS base_model, 'yarn' AS method, true AS frozen, true AS exact_attention,"
                " ? AS seed, 'multi_key' AS benchmark, 'code' AS task, 'clean' AS profile,"
                " 1000 AS eval_length, 'done' AS status, 1 AS attempts",
                [f"c{seed}", seed],
            )
            for document in range(documents):
                margin = float(MARGINS[document, seed])
                for number, depth in enumerate((30.0, 100.0)):
                    connection.execute(
                        "INSERT INTO store.sample"
                        " VALUES (?, ?, 1000, ?, 900, '', '', ?, ?, ?"
                        ", NULL, NULL, NULL, NULL, NULL)",
                        [f"c{seed}", 2 * document + number, depth, float(margin > 1),
                         f"d{document}", margin],
                    )  # fmt: skip
        return list(retrieval_by_depth(connection))


def test_accuracy_and_margin_are_means_of_a_bin_with_documents_as_clusters():
    near, far = rows(6)[::-1]
    assert (far["depth_from"], far["distance"]) == (20, pytest.approx(0.7 * 900))
    assert (near["depth_from"], near["distance"]) == (80, 0)  # 100 % belongs to the last bin
    assert (far["num_samples"], far["num_clusters"], far["num_seeds"]) == (12, 6, 2)
    assert far["accuracy"] == pytest.approx(7 / 12)  # seven margins exceed 1
    # With two questions per document, the interval is Student's over the documents' means.
    low, high = stats.t.interval(0.95, 5, MARGINS.mean(), stats.sem(MARGINS.mean(axis=1)))
    assert (far["margin_low"], far["margin_high"]) == (pytest.approx(low), pytest.approx(high))
    assert far["accuracy_low"] < 7 / 12 < far["accuracy_high"]


def test_fewer_than_six_documents_give_no_interval():
    for row in rows(5):
        assert (row["margin_low"], row["accuracy_high"]) == (None, None)
        assert row["margin"] == pytest.approx(MARGINS[:5].mean())
