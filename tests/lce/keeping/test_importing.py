"""`lce import`: parcels bring a study's results into a home; no bad parcel changes one.

Strategy: the finished small study is the other machine. A home that lost its artifacts imports
parcels, which this file writes itself.
"""

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from lce_core.store.records import sealed
from tests.support.studies import TINY_STEPS, computed, copied_home, lce, scores, write_study

pytestmark = pytest.mark.slow

Members = dict[str, bytes]


def members(home: Path, *folders: Path) -> Members:
    """Files of artifacts, all by default, as a parcel has them: trainings without their weights."""
    found = {}
    for folder in folders or sorted((home / "artifacts").glob("*/*")):
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            if file.parent.name != "model":
                found[file.relative_to(home).as_posix()] = file.read_bytes()
    return found


def plan_of(home: Path) -> str:
    steps = json.loads((home / "studies/tiny/plan.json").read_text())["steps"]
    return hashlib.sha256("\n".join(sorted(steps)).encode()).hexdigest()


def packed(path: Path, plan: str, files: Mapping[str, bytes], link: str = "") -> Path:
    manifest = json.dumps({"format": 1, "study": "tiny", "plan": plan}).encode()
    with tarfile.open(path, "w") as tar:
        for name, content in {"parcel.json": manifest, **files}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.type, info.linkname = (tarfile.SYMTYPE, "/etc") if name == link else (b"0", "")
            tar.addfile(info, io.BytesIO(content))
    return path


def artifacts(home: Path) -> set[str]:
    return {path.parent.name for path in home.glob("artifacts/*/*/record.json")}


def test_imported_results_are_those_of_the_other_home_and_weights_train_again_only_if_needed(
    finished, text, tmp_path
):
    home, study = copied_home(finished, tmp_path / "home"), write_study(tmp_path)
    shutil.rmtree(home / "artifacts")
    (home / "catalog.duckdb").unlink()
    plan, some = plan_of(home), sorted((finished / "artifacts/cell").iterdir())[:3]
    failure = {"class": "data", "message": "m", "folder": "f", "attempts": 1, "short_of_memory": 0}
    note = json.dumps({**failure, "folders": {}, "axes": {}}).encode()
    failed = f"failures/{some[0].name[-12:]}.json"
    others = {"logs/worker.log": b"", failed: note}
    first = packed(tmp_path / "tiny.results-0001.tar", plan, members(finished, *some))
    second = packed(tmp_path / "tiny.results-0002.tar", plan, members(finished) | others)
    notes = packed(tmp_path / "tiny.results-0000.tar", plan, others)
    assert lce(home, "import", str(notes)).endswith("0 imported, 0 already here, 0 refused\n")
    assert (home / failed).read_bytes()
    told = lce(home, "import", str(second), str(first))
    assert told.endswith(f"{TINY_STEPS} imported, 3 already here, 0 refused\n")
    assert not (home / failed).exists()
    assert scores(home) == scores(finished)
    told = lce(home, "import", str(first), str(second))
    assert told.endswith(f"0 imported, {TINY_STEPS + 3} already here, 0 refused\n")
    assert computed(lce(home, "run", study, *text)) == 0
    assert "none damaged" in lce(home, "verify", "--files")
    assert "nothing to remove" in lce(home, "gc", "--dry-run")
    tuned = ("--select", "variant=yarn-tuned")
    told = lce(home, "export", study, str(tmp_path / "out"), *tuned, *text, status=2)
    assert "a finished training whose weights are elsewhere" in told
    shown = json.loads(lce(home, "plan", study, "--json", *text))
    assert shown["to_do"]["hours"] == 0
    trained = [step for step in shown["steps"] if step["kind"] in ("base", "finetune")]
    assert [step["state"] for step in trained] == ["done", "done"]
    assert all("weights are elsewhere" in step["reason"] for step in trained)
    base = next((finished / "artifacts/base").iterdir())
    weights = {f"artifacts/base/{base.name}/model/{file.name}": file.read_bytes()
               for file in (base / "model").iterdir()}  # fmt: skip
    whole = packed(tmp_path / "tiny.results-0003.tar", plan, members(finished, base) | weights)
    assert lce(home, "import", str(whole)).startswith("1 imported, 0 already here")
    shutil.rmtree(next((home / "artifacts/cell").glob("*yarn-tuned*")))
    assert "1 finetune yarn: its weights are elsewhere" in lce(home, "plan", study, *text)
    # The cell and its checkpoint; the weights of the base came in the last parcel.
    assert computed(lce(home, "worker", study, *text)) == 2
    assert scores(home) == scores(finished)


def changed(files: Members, name: str, edit: Callable[[bytes], bytes]) -> Members:
    return {path: edit(content) if path.endswith(name) else content
            for path, content in files.items()}  # fmt: skip


def flipped(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def other_scores(content: bytes) -> bytes:
    record = json.loads(content)
    record["result"]["scores"][0]["value"] += 0.25
    return json.dumps(sealed(record)).encode()


CELL = "artifacts/cell/x-0123456789ab"
EDITS: dict[str, tuple[Callable[[Members], Members], int, str]] = {
    "a flipped bit": (lambda f: changed(f, "samples.parquet", flipped), 1, "samples.parquet is"),
    "a broken seal": (lambda f: changed(f, "record.json", lambda c: c.replace(b"0", b"1", 1)), 1,
                      "record.json was changed after"),
    "a file too many": (lambda f: {**f, f"{next(iter(f)).rpartition('/')[0]}/x": b""}, 1,
                        "does not list x"),
    "a missing file": (lambda f: dict([*f.items()][:-1]), 1, "is missing"),
    "another folder": (lambda f: {n.replace("/cell/", "/rows/"): c for n, c in f.items()}, 1,
                       "its record is that of cell"),
    "a path outside": (lambda f: {**f, f"{CELL}/../../../../x": b""}, 1, "a path outside"),
    "an absolute path": (lambda f: {**f, "/tmp/lce-x": b""}, 1, "a path outside"),
    "an attempt": (lambda f: {**f, "artifacts/cell/.attempt-0123456789ab/x": b""}, 1, "outside"),
    "a file as folder": (lambda f: {**f, f"{CELL}/x": b"", f"{CELL}/x/y": b""}, 1, "twice"),
    "a long name": (lambda f: {**f, CELL.replace("x", 300 * "x") + "/x": b""}, 1, "too long"),
    "a link": (lambda f: {**f, f"{CELL}/link": b""}, 1, "not a regular file"),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_what_is_wrong_with_a_parcel_is_named_and_stays_outside(edit, finished, tmp_path):
    home = copied_home(finished, tmp_path / "home")
    bad, good = sorted((home / "artifacts/cell").iterdir())[:2]
    change, status, phrase = EDITS[edit]
    files, intact = change(members(home, bad)), members(home, good)
    path = packed(tmp_path / "t.results-0001.tar", plan_of(home), files | intact, f"{CELL}/link")
    shutil.rmtree(bad)
    shutil.rmtree(good)
    before = artifacts(home)
    told = lce(home, "import", str(path), status=status)
    assert phrase in told
    is_whole_refused = "nothing of it was imported" in told
    assert artifacts(home) - before == (set() if is_whole_refused else {good.name})
    (named,) = (line for line in told.splitlines() if "t.results-0001.tar" in line)
    assert is_whole_refused or bad.name in named
    assert not (home / "importing").exists()
    assert f"{int(not is_whole_refused)} imported, 0 already here, 1 refused\n" in told


def test_a_parcel_that_is_cut_anywhere_or_no_parcel_is_refused(finished, tmp_path):
    home = copied_home(finished, tmp_path / "home")
    cell, before = next((home / "artifacts/cell").iterdir()), artifacts(home)
    whole = packed(tmp_path / "whole.tar", plan_of(home), members(home, cell)).read_bytes()
    with tarfile.open(tmp_path / "whole.tar") as tar:
        ends = [member.offset for member in tar] + [tar.offset]
    shutil.rmtree(cell)
    path = tmp_path / "cut.tar"
    for cut in (*ends[1:], ends[1] + 100, ends[2] + 600):
        path.write_bytes(whole[:cut])
        assert "ends early or is damaged" in lce(home, "import", str(path), status=1)
    path.write_bytes(whole[: ends[2]] + b"x" + whole[ends[2] + 1 :])  # in a header
    assert "ends early or is damaged" in lce(home, "import", str(path), status=1)
    path.write_bytes(b"")
    assert "cut.tar" in lce(home, "import", str(path), status=2)
    assert "cut.tar" in lce(home, "import", str(path.with_name("no-cut.tar")), status=2)
    other = packed(path, plan_of(home)[::-1], members(finished))
    told = lce(home, "import", str(other), status=2)
    assert f"0 of the parcel's {TINY_STEPS} steps are not in the plan" in told
    assert artifacts(home) == before - {cell.name}


def test_other_scores_are_kept_beside_those_of_the_home_and_damage_is_replaced(finished, tmp_path):
    home = copied_home(finished, tmp_path / "home")
    cell, damaged = sorted((home / "artifacts/cell").glob("*passkey*"))[:2]
    files = changed(members(home, cell), "record.json", other_scores) | members(home, damaged)
    path = packed(tmp_path / "t.results-0001.tar", plan_of(home), files)
    (damaged / "samples.parquet").unlink()
    value = json.loads((cell / "record.json").read_text())["result"]["scores"][0]["value"]
    for imported in (1, 0):
        told = lce(home, "import", str(path), status=1)
        assert f"accuracy {value} here, {value + 0.25} in the parcel" in told
        assert f"{imported} imported, {1 - imported} already here, 0 refused, 1 with other" in told
    assert (home / "imported/t.results-0001/cell" / cell.name / "samples.parquet").is_file()
    assert "none damaged" in lce(home, "verify", "--files")
    assert scores(home) == scores(finished)
