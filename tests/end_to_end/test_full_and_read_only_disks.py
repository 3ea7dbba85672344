"""Commands over a home whose disk is full or read-only: one sentence, code 3, nothing lost.

Strategy: a copy of the finished home on a small disk of its own, which is filled up or remounted.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.forked_commands import Ended
from tests.support.ports import unused_port
from tests.support.small_disks import remounted, small_disk
from tests.support.studies import lce, run_command, scores, write_study

pytestmark = pytest.mark.slow

Arguments = tuple[str, ...]

SPARE_BYTES = 3 << 20
"""Room for logs and notes, and not for a catalog of 6 MB."""


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A file system of its own, which can be filled up and made read-only."""
    with small_disk(tmp_path / "disk", 80) as folder:
        yield folder


@contextlib.contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Fill the disk up to `SPARE_BYTES`."""
    ballast, state = disk / "ballast", os.statvfs(disk)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, state.f_bavail * state.f_frsize - SPARE_BYTES)
    yield
    ballast.unlink()


def require_sentence(ended: Ended, says: str, command: str) -> None:
    printed = f"lce {command}: {ended.code}\n{ended.out}\n{ended.err}"
    assert ended.code == 3, printed
    assert "Traceback" not in ended.err + ended.out, printed
    last = [line for line in ended.err.splitlines() if line.startswith("lce: ")]
    assert len(last) == 1, printed
    assert says in last[0], printed


def test_a_read_only_store_ends_every_command_that_writes_with_one_sentence(
    finished, text, disk, tmp_path
):
    home, study = disk / "home", write_study(tmp_path)
    shutil.copytree(finished, home)
    (home / "catalog.duckdb").unlink()  # else nothing would have to be written
    ports = ["--port", str(unused_port()), "--mlflow-port", str(unused_port())]
    commands = {
        "run": ["run", study, *text],
        "worker": ["worker", study, *text],
        "rebuild catalog": ["rebuild", "catalog"],
        "rebuild mlflow": ["rebuild", "mlflow"],
        "gc": ["gc"],
        "verify": ["verify", study, *text],
        "up": ["up", *ports],
    }
    assert remounted(disk, "ro")
    for name, command in commands.items():
        ended = run_command(home, *command)
        require_sentence(ended, "Read-only file system", name)
    for command in (["plan", study, *text], ["status", study, *text], ["gc", "--dry-run"]):
        assert run_command(home, *command).code == 0
    assert remounted(disk, "rw")
    lce(home, "worker", study, *text)
    assert scores(home) == scores(finished)


def test_commands_on_a_full_disk_end_with_one_sentence(finished, text, disk, tmp_path):
    home, study = disk / "home", write_study(tmp_path)
    shutil.copytree(finished, home)
    (home / "catalog.duckdb").unlink()
    with filled(disk):
        for command in (["worker", study, *text], ["rebuild", "catalog"]):
            ended = run_command(home, *command)
            require_sentence(ended, "No space left on device", command[0])
        ended = run_command(home, "run", study, *text)
        require_sentence(ended, "", "run")
    shutil.rmtree(home / "mlflow")
    with filled(disk):
        fill_rest = disk / "rest"
        fill_rest.write_bytes(b"0" * (SPARE_BYTES - (256 << 10)))
        ended = run_command(home, "rebuild", "mlflow")
        require_sentence(ended, "", "rebuild mlflow")
        fill_rest.unlink()
    lce(home, "worker", study, *text)
    assert scores(home) == scores(finished)
