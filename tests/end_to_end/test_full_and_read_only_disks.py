"""Commands over a home whose disk is full or read-only: one sentence, code 3, nothing lost.

Strategy: a copy of the finished home on a small disk of its own, which is filled up or remounted.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.servers.ports import free_port
from tests.support.forked_commands import Ended, Forks, forked_commands
from tests.support.studies import environment, lce, scores, write_study

Arguments = tuple[str, ...]

SECONDS = 120.0
SPARE_BYTES = 3 << 20
"""Room for logs and notes, and not for a catalog of 6 MB."""


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with forked_commands(tmp_path_factory.mktemp("forks")) as running:
        yield running


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, which can be filled up and made read-only."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a disk needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def remount(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)


@contextlib.contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Within it the disk has `SPARE_BYTES` left."""
    ballast, state = disk / "ballast", os.statvfs(disk)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, state.f_bavail * state.f_frsize - SPARE_BYTES)
    yield
    ballast.unlink()


def require_sentence(ended: Ended, says: str, command: str) -> None:
    said = f"lce {command}: {ended.code}\n{ended.out}\n{ended.err}"
    assert ended.code == 3, said
    assert "Traceback" not in ended.err + ended.out, said
    last = [line for line in ended.err.splitlines() if line.startswith("lce: ")]
    assert len(last) == 1, said
    assert says in last[0], said


@pytest.mark.slow
def test_a_read_only_store_ends_every_command_that_writes_with_one_sentence(
    forks: Forks, finished: Path, text: Arguments, disk: Path, tmp_path: Path
) -> None:
    home, study = disk / "home", write_study(tmp_path)
    shutil.copytree(finished, home)
    (home / "catalog.duckdb").unlink()  # else nothing would have to be written
    ports = ["--port", str(free_port()), "--mlflow-port", str(free_port())]
    commands = {
        "run": ["run", study, *text],
        "worker": ["worker", study, *text],
        "rebuild catalog": ["rebuild", "catalog"],
        "rebuild mlflow": ["rebuild", "mlflow"],
        "gc": ["gc"],
        "verify": ["verify", study, *text],
        "up": ["up", *ports],
    }
    remount(disk, "ro")
    for name, command in commands.items():
        ended = forks.run(command, environment(home), SECONDS)
        require_sentence(ended, "Read-only file system", name)
    for command in (["plan", study, *text], ["status", study, *text], ["gc", "--dry-run"]):
        assert forks.run(command, environment(home), SECONDS).code == 0
    remount(disk, "rw")
    lce(home, "worker", study, *text)
    assert scores(home) == scores(finished)


@pytest.mark.slow
def test_a_disk_that_is_full_when_the_catalog_is_due_is_named(
    forks: Forks, finished: Path, text: Arguments, disk: Path, tmp_path: Path
) -> None:
    home, study = disk / "home", write_study(tmp_path)
    shutil.copytree(finished, home)
    (home / "catalog.duckdb").unlink()
    with filled(disk):
        for command in (["worker", study, *text], ["rebuild", "catalog"]):
            ended = forks.run(command, environment(home), SECONDS)
            require_sentence(ended, "No space left on device", command[0])
    lce(home, "worker", study, *text)
    assert scores(home) == scores(finished)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_run_and_mlflow_on_a_full_disk_end_with_one_sentence(
    forks: Forks, finished: Path, text: Arguments, disk: Path, tmp_path: Path
) -> None:
    home, study = disk / "home", write_study(tmp_path)
    shutil.copytree(finished, home)
    (home / "catalog.duckdb").unlink()
    with filled(disk):
        ended = forks.run(["run", study, *text], environment(home), SECONDS)
        require_sentence(ended, "", "run")
    shutil.rmtree(home / "mlflow")
    with filled(disk):
        fill_rest = disk / "rest"
        fill_rest.write_bytes(b"0" * (SPARE_BYTES - (256 << 10)))
        ended = forks.run(["rebuild", "mlflow"], environment(home), SECONDS)
        require_sentence(ended, "", "rebuild mlflow")
        fill_rest.unlink()
    lce(home, "run", study, *text)
    assert scores(home) == scores(finished)
