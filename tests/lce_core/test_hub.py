"""Data sets on the hub: a cache laid out as the hub client does, and a hub that is a closed port.

Nothing is mocked; the client's own cache look-up finds the files.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.settings import DATA_FOLDER, named_folders
from lce_core.errors import SpecError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ADDRESS = f"hub:rajpurkar/squad@{COMMIT}"
ASK = """
import sys
from pathlib import Path
from lce_core.benchmarks._data import DataSet
data = DataSet("squad", ("*.parquet", "*.json"), "the authors")
try:
    print(*[file.name for file in data.files({"squad": Path(sys.argv[1])})])
except Exception as error:
    print(type(error).__name__, error)
"""


def ask(home: Path, endpoint: str = "http://127.0.0.1:9") -> str:
    closed = {"HF_ENDPOINT": endpoint, "HF_HUB_OFFLINE": "0", "HF_HOME": str(home)}
    done = subprocess.run(
        [sys.executable, "-c", ASK, ADDRESS],
        env=os.environ | closed,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.slow
def test_a_cached_data_set_needs_no_network(tmp_path: Path) -> None:
    folder = tmp_path / "hub" / "datasets--rajpurkar--squad" / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    (folder / "dev.json").write_text("{}", encoding="utf-8")
    assert ask(tmp_path) == "dev.json"


@pytest.mark.slow
def test_a_data_set_out_of_reach_is_unavailable_within_seconds(tmp_path: Path) -> None:
    start = time.monotonic()
    answer = ask(tmp_path)
    assert time.monotonic() - start < 20
    assert answer.startswith("UnavailableError data set 'squad'")
    for part in (f"rajpurkar/squad@{COMMIT}", "get it from the authors", "--data-folder squad="):
        assert part in answer


def test_an_address_stays_as_it_is_and_a_branch_is_refused() -> None:
    assert named_folders([f"squad={ADDRESS}"], DATA_FOLDER) == {"squad": Path(ADDRESS)}
    with pytest.raises(SpecError, match="40 hex digits of a commit"):
        named_folders(["squad=hub:rajpurkar/squad@main"], DATA_FOLDER)
