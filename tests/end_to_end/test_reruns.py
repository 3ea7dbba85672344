"""What a second run does: nothing, only what another study asks for, or only what was damaged.

Strategy: one small study is run once; each test disturbs a copy of its store and runs it again.
"""

import json
import shutil
from pathlib import Path

import pytest

from catalog.queries import run_query
from tests.support.digests import catalog_digest, mlflow_digest
from tests.support.studies import TINY, TINY_STEPS, computed, lce, scores, write_study

pytestmark = pytest.mark.slow

Arguments = tuple[str, ...]


def projections(home: Path) -> tuple[str, str]:
    """What the two databases of a store hold; MLflow's of a copied store is made again, empty."""
    return catalog_digest(home / "catalog.duckdb"), mlflow_digest(home)


def test_a_second_run_computes_nothing_starts_no_server_and_leaves_the_catalog_as_it_was(
    finished, home, text, tmp_path
):
    study = write_study(tmp_path)
    lce(home, "run", study, *text)  # the catalog has the path of the study file
    before = projections(home)
    shutil.rmtree(home / "prefect")
    assert computed(lce(home, "run", study, *text)) == 0
    assert projections(home) == before
    assert before[1] == projections(finished)[1]
    assert not (home / "prefect").exists()


def test_another_length_and_training_value_run_their_dependents_and_the_plan_says_why(
    home, text, tmp_path
):
    perplexity, passkey = TINY["benchmarks"]
    changed = write_study(
        tmp_path,
        benchmarks=[perplexity, {**passkey, "lengths": [128, 256, 384]}],
        training={**TINY["training"], "learning_rate": 0.001},
    )
    shown = " ".join(lce(home, "plan", changed, *text).split())
    moved = "training.learning_rate: 0.0005 -> 0.001"
    assert f"~ 4 cells yarn on perplexity, passkey: checkpoint.{moved}" in shown
    assert f"~ 1 finetune yarn: {moved}" in shown
    # A cell of both frozen methods; the fine-tuned checkpoint and its five cells.
    assert computed(lce(home, "worker", changed, *text)) == 2 + 6
    _, rows = run_query(home / "catalog.duckdb", "SELECT DISTINCT eval_length FROM scores")
    assert {length for (length,) in rows} == {128, 256, 384}


def test_a_budget_computes_whole_blocks_and_the_next_run_the_rest(home, text, server, tmp_path):
    # Without a trained method; tests/flows/plans/test_budget.py has blocks that need training.
    study = write_study(tmp_path, seeds=[0, 1], methods=["none", TINY["methods"][1]])
    whole = json.loads(lce(home, "plan", study, *text, "--json", "--budget", "1000cpuh"))
    hours = f"{whole['budget']['hours'] * 0.9:.9f}cpuh"
    output = lce(home, "run", study, *text, "--budget", hours, server=server)
    assert "left out: " in output
    query = "SELECT benchmark, eval_length, count(*) FROM cells WHERE seed = 1 AND status = 'done'"
    _, rows = run_query(home / "catalog.duckdb", f"{query} GROUP BY ALL ORDER BY ALL")
    assert 0 < len(rows) < 4  # of two benchmarks at two lengths
    assert {number for *_, number in rows} == {2}  # over all methods
    # The base of the new seed and its rows are there.
    assert computed(lce(home, "worker", study, *text)) == 2 * (4 - len(rows))


def test_damage_is_noticed_and_only_that_is_redone(home, text, tmp_path, finished):
    checkpoint = next((home / "artifacts" / "finetune").iterdir())
    weights = checkpoint / "model" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.unlink()  # a link to the finished store's file
    weights.write_bytes(content)
    incomplete = next((home / "artifacts" / "cell").glob("*-none-*"))
    (incomplete / "samples.parquet").unlink()
    study = write_study(tmp_path)
    output = lce(home, "worker", study, *text)
    assert computed(output) == 1  # no missing cell reads the weights
    assert "was last planned from" in output  # another file of this study name
    shutil.rmtree(next((home / "artifacts" / "cell").glob("*-yarn-tuned-*")))
    output = lce(home, "worker", study, *text)
    assert computed(output) == 2
    assert "was last planned from" not in output
    assert scores(home) == scores(finished)


def test_inputs_that_are_gone_are_computed_again_only_for_a_missing_cell(
    home, text, tmp_path, finished
):
    study, artifacts = write_study(tmp_path), home / "artifacts"
    for kind in ("base", "finetune", "rows"):
        shutil.rmtree(artifacts / kind)
    shown = json.loads(lce(home, "plan", study, *text, "--json"))
    assert shown["to_do"]["hours"] == 0
    status = json.loads(lce(home, "status", study, *text, "--json"))
    assert (status["seconds_left"], status["cells"]) == (0.0, {"done": 12})
    lce(home, "watch", study, *text)
    assert computed(lce(home, "worker", study, *text)) == 0
    shutil.rmtree(next((artifacts / "cell").glob("*-none-*")))
    # The cell, the base model and its rows; neither the fine-tuned checkpoint nor its rows.
    assert computed(lce(home, "worker", study, *text)) == 3
    assert not (artifacts / "finetune").exists()
    assert scores(home) == scores(finished)


def test_a_part_of_the_weights_is_damage_and_none_is_not(home, text, tmp_path):
    folder = next((home / "artifacts" / "finetune").iterdir()) / "model"
    (folder / "config.json").unlink()
    assert "model/config.json is missing" in lce(home, "verify", "--files", status=1)
    shutil.rmtree(folder)
    assert "none damaged" in lce(home, "verify", "--files")
    lce(home, "rebuild", "catalog")
    query = "SELECT intact, count(*) FROM artifacts GROUP BY ALL"
    assert run_query(home / "catalog.duckdb", query)[1] == [(True, TINY_STEPS)]
    (losses,) = run_query(home / "catalog.duckdb", "SELECT count(*) > 0 FROM trainings")[1]
    assert losses == (True,)
    study = write_study(tmp_path)
    verified = lce(home, "verify", study, "--sample", "1", *text)
    assert "1 of 8 done cells" in verified  # those of yarn need the weights


def test_catalog_and_mlflow_are_rebuilt_equal(finished, home):
    (home / "catalog.duckdb").unlink()
    shutil.rmtree(home / "mlflow")
    lce(home, "rebuild", "catalog")
    lce(home, "rebuild", "mlflow")
    assert projections(home) == projections(finished)
