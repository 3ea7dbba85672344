"""`lce verify` on a finished study: cells are computed again aside, and what differs is found."""

import json
from pathlib import Path

import pytest

from catalog.queries import run_query
from lce_core.store.identity import sha256_file
from lce_core.store.records import sealed
from tests.support.studies import TINY, lce, write_study

pytestmark = pytest.mark.slow

CELLS = 12


def state(home: Path) -> dict[str, tuple[str, int]]:
    """Content and time of every file of every artifact, and the names in other folders."""
    files = [path for path in (home / "artifacts").rglob("*") if path.is_file()]
    others = [
        one for name in ("failures", "prompts", "progress") for one in (home / name).iterdir()
    ]
    return {
        **{str(path): (sha256_file(path), path.stat().st_mtime_ns) for path in files},
        **{str(path): ("", 0) for path in others},
    }


def test_cells_computed_again_are_the_same_and_nothing_of_the_study_changes(home, text, tmp_path):
    study, before = write_study(tmp_path), state(home)
    left = home / "verifications" / ".aside" / "artifacts"
    left.mkdir(parents=True)  # of a verification that was killed
    printed = lce(home, "verify", study, *text, "--sample", "30%", "--seed", "1")
    assert f"4 of {CELLS} done cells are recomputed" in printed
    assert "4 identical" in printed
    assert state(home) == before
    assert not left.parent.exists()
    kept = list((home / "verifications").glob("*.json"))
    assert len(kept) == 4
    rows = run_query(home / "catalog.duckdb", "SELECT cell, identical, study FROM verifications")[1]
    assert {row[0] for row in rows} == {path.name[:12] for path in kept}
    assert {row[1:] for row in rows} == {(True, TINY["study"])}


def test_a_result_that_was_changed_is_found(home, text, tmp_path):
    record = min((home / "artifacts" / "cell").glob("*-none-*-perplexity-*/record.json"))
    content = json.loads(record.read_text(encoding="utf-8"))
    value = content["result"]["scores"][0]["value"]
    content["result"]["scores"][0]["value"] = 1.01 * value
    record.unlink()  # a link to the one that other tests use
    record.write_text(json.dumps(sealed(content)), encoding="utf-8")
    study = write_study(tmp_path, methods=["none"])
    arguments = ("verify", study, *text, "--sample", "100%")
    printed = lce(home, *arguments, status=1)
    assert "3 identical, 1 different" in printed
    assert f"  {content['name']}: " in printed
    assert str(value) in printed
    assert json.loads(record.read_text(encoding="utf-8")) == sealed(content)
    assert "1 within the tolerance" in lce(home, *arguments, "--tolerance", "0.02")


def test_a_cell_that_cannot_be_computed_again_is_named(home, text, tmp_path):
    held_out = next((home / "artifacts" / "held_out").iterdir())
    held_out.rename(home / "artifacts" / "held_out" / f".{held_out.name}")
    printed = lce(home, "verify", write_study(tmp_path), *text, "--sample", "1", status=1)
    assert "could not be recomputed: " in printed
    assert "no undamaged artifact of its held_out" in printed
    assert not list((home / "failures").iterdir())


def test_without_a_done_cell_nothing_is_verified(text, tmp_path):
    printed = lce(tmp_path / "empty", "verify", write_study(tmp_path), *text, status=2)
    assert "no done cell" in printed
    assert not (tmp_path / "empty").exists()
