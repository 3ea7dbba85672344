"""RULER's scorer on 6,500 published answers: every stored score, and the averages of the paper.

The answers are those of Llama-3.1-8B with STRING at 128K, with the scores that RULER's script gave
them (github.com/HKUNLP/STRING@216cc2f). Progress messages precede the JSON lines of each file.
"""

import json
from statistics import fmean

import pytest

from lce_core.benchmarks.ruler import match

AVERAGES = {
    "niah_single_1": 100.0,
    "niah_single_2": 100.0,
    "niah_single_3": 100.0,
    "niah_multikey_1": 97.8,
    "niah_multikey_2": 84.8,
    "niah_multikey_3": 80.0,
    "niah_multiquery": 97.9,
    "niah_multivalue": 91.1,
    "vt": 88.08,
    "cwe": 0.08,
    "fwe": 75.13,
    "qa_1": 77.2,
    "qa_2": 48.2,
}
"""Average per task in per cent: STRING's table; for cwe, where the table rounds to 0.0, the mean of
the stored scores."""


@pytest.mark.parametrize("task", AVERAGES)
def test_every_published_score_and_average_is_reproduced(test_data, task):
    text = (test_data / "ruler_predictions" / f"{task}.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.split("\n") if line.startswith("{")]
    assert len(rows) == 500
    scores = [match(task, row["pred"], row["needle"]) for row in rows]
    assert scores == [pytest.approx(float(row["score"]), abs=1e-12) for row in rows]
    assert round(100 * fmean(scores), 1) == round(AVERAGES[task], 1)
