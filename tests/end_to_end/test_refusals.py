"""Requests that are refused, by the command line: what is said, and that nothing was written."""

import pytest

from tests.support.digests import catalog_digest
from tests.support.studies import lce, write_study

pytestmark = pytest.mark.slow

NO_FOLDER = {"name": "jsonl_folder", "domain_names": ["code"]}


def test_a_study_without_its_data_is_refused_and_keeps_its_results(home, tmp_path):
    before = catalog_digest(home / "catalog.duckdb")
    output = lce(home, "run", write_study(tmp_path, corpus=NO_FOLDER), status=2)
    assert "folder 'text': got no folder of this name" in output
    assert "--data-folder text=FOLDER" in output
    assert catalog_digest(home / "catalog.duckdb") == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "toyy"], "write 'toy', or another of"),
        (["run", "toy", "--budget", "0.000000001gpuh"], "too little for any block"),
        (["plan", "absent.yaml"], "no such file"),
        (["run", "toy", "--device", "tpu"], "device"),
        (["run", "toy", "--device", "cuda"], "no GPU is visible"),
        (["run", "toy", "--plugins", "absent"], "absent, which is not a folder"),
        (["run", "toy", "--slots", "0"], "slots"),
        (["fetch", "datasets:a/b@main"], "got datasets:a/b@main; expected"),
        (["sql", "SELECT 1"], "lce run STUDY"),
    ],
)
def test_wrong_requests_exit_with_2_and_write_nothing(tmp_path, arguments, message):
    assert message in lce(tmp_path / "home", *arguments, status=2)
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no .jsonl or .txt"),
        (b"caf\xe9", "byte 3, which is not UTF-8"),
        ("locked", "cannot be"),
    ],
    ids=["empty folder", "latin-1", "unreadable"],
)
def test_unusable_text_is_refused_before_anything_is_written(tmp_path, content, message):
    folder = tmp_path / "text"
    folder.mkdir()
    if content == "locked":
        (folder / "a.txt").symlink_to("a.txt")  # root reads any file, but nobody reads a loop
    elif isinstance(content, bytes):
        (folder / "a.txt").write_bytes(content)
    study = write_study(tmp_path, corpus=NO_FOLDER)
    output = lce(tmp_path / "home", "run", study, "--data-folder", f"text={folder}", status=2)
    assert message in output
    assert str(folder) in output
    assert not (tmp_path / "home").exists()
