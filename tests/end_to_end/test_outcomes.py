"""What a finished study shows: its costs, its report, and cells that failed or cannot be."""

import json
import re

import pytest

from catalog.queries import run_query
from lce_core.store.artifacts import Store
from lce_core.study.pricing.speed import calibration_of, finished_on, speed_of
from tests.support.studies import TINY, TINY_STEPS, lce, write_study

pytestmark = pytest.mark.slow


def test_costs_are_predicted_within_15_per_cent_of_what_cells_take(finished):
    query = "SELECT predicted_tokens, tokens, predicted_flops, flops FROM cells"
    _, rows = run_query(finished / "catalog.duckdb", query)
    assert len(rows) == 12
    for predicted_tokens, tokens, predicted_flops, flops in rows:
        assert predicted_tokens == pytest.approx(tokens, rel=0.15)
        assert predicted_flops == pytest.approx(flops, rel=0.15)


def test_what_has_finished_prices_what_is_to_do(home, text, tmp_path):
    store = Store(home)
    finished = finished_on("cpu", store, threads=1)
    assert len(finished) == TINY_STEPS
    speed = speed_of("cpu", finished)
    for kinds in (("base", "finetune"), ("cell",)):
        steps = [one for one in finished if one.kind in kinds]
        predicted = sum(speed.seconds(one.kind, one.cost) for one in steps)
        assert predicted == pytest.approx(sum(one.seconds for one in steps))
    cells = [speed.seconds(one.kind, one.cost) for one in finished if one.kind == "cell"]
    calibration = calibration_of(speed, finished)
    prices = [
        (one.group, calibration.seconds(one.group, speed.seconds(one.kind, one.planned)))
        for one in finished
        if one.kind == "cell"
    ]
    expected = calibration.expected(prices)
    taken = sum(one.seconds for one in finished if one.kind == "cell")
    assert expected.error is not None
    assert abs(expected.seconds / taken - 1) <= expected.error
    study = write_study(tmp_path, seeds=[0, 1])
    told = json.loads(lce(home, "plan", study, *text, "--json"))
    assert (told["device"], told["speed"], told["corrected"]) == ("cpu", "measured", True)
    done, to_do = (
        sum(3600 * cell["hours"] for cell in told["cells"] if cell["state"] == state)
        for state in ("done", "missing")
    )
    assert to_do == pytest.approx(done)  # another seed costs the same
    # Whole answers are planned, and corrected by what these cells took.
    assert done == pytest.approx(sum(cells), rel=0.25)
    left = lce(home, "status", study, *text)
    assert "12 of 24 cells, about " in left
    assert "speed measured in finished steps" in left


def test_records_of_cells_say_what_passed_through_the_model_together(finished):
    query = "SELECT DISTINCT json_extract(result, '$.passes') FROM artifacts WHERE kind = 'cell'"
    _, rows = run_query(finished / "catalog.duckdb", query)
    assert [json.loads(row) for (row,) in rows] == [{"batch_tokens": 8192, "piece_tokens": 4096}]


def test_without_held_out_text_no_run_trains(library, tmp_path):
    home = tmp_path / "home"
    study = write_study(tmp_path, corpus={**TINY["corpus"], "held_out_percent": 1})
    output = lce(home, "worker", study, "--data-folder", f"text={library}", status=1)
    assert (
        "held_out jsonl_folder-toy_llama: data: DataError:"
        " jsonl_folder: domain 'code': got no held-out text;"
    ) in output
    assert {path.parent.name for path in (home / "artifacts").glob("*/*-s0-*")} <= {"rows"}
    status = lce(home, "status", study, "--data-folder", f"text={library}")
    assert "no held-out text" in status


def test_a_diverging_run_fails_its_cells_and_nothing_else(home, text, server, tmp_path):
    wild = {**TINY["training"], "learning_rate": 1.0e30, "gradient_clip": 1.0e30}
    study = write_study(tmp_path, training=wild)
    output = lce(home, "run", study, *text, status=1, server=server)
    assert "non_finite" in output
    assert "finetune toy_llama-yarn-tuned-s0" in output
    assert "Traceback" not in output
    assert "and 3 units that did not run because of these" in output
    query = "SELECT status, count(*), max(reason) FROM cells GROUP BY ALL ORDER BY ALL"
    done, blocked = run_query(home / "catalog.duckdb", query)[1]
    assert (done[:2], blocked[:2]) == (("done", 8), ("missing", 4))
    assert re.match(r"finetune \w+ failed: non_finite: .*step", blocked[2])
    # Permanent failures are not tried again, but named.
    again = lce(home, "worker", study, *text, status=1)
    assert "finetune toy_llama-yarn-tuned-s0: non_finite" in again
    assert "--retry-failed" in again
    assert "started" not in again
    assert "4 failed" in lce(home, "status", study, *text)
