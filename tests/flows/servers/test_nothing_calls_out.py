"""No command that reads a store tries to reach anything beyond this machine.

Strategy: run the commands in a network namespace with loopback alone, where nothing answers from
outside, and let strace note every address that they or their children try to connect or send to.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from catalog.build import build_catalog
from lce_core.store.artifacts import Store
from tests.support.catalogs.sample_store import STUDY, sample_store
from tests.support.ports import unused_port
from tests.support.studies import LCE, environment, library_text, write_study

TRACE = "trace=connect,sendto,sendmsg,sendmmsg"
ADDRESS = re.compile(r'(?:inet_addr\("|inet_pton\(AF_INET6, ")([^"]+)"')
READING = (
    ("plan", "smoke"),
    ("sql", "SELECT count(*) FROM cells"),
    ("report", STUDY),
    ("claims", STUDY),
)


def isolated(command: list[str], home: Path, notes: Path) -> subprocess.CompletedProcess[str]:
    """Run a command where only loopback is there; `notes` gets what it tries to connect to."""
    traced = ["strace", "-f", "--seccomp-bpf", "-e", TRACE, "-o", str(notes), *command]
    alone = ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *traced]
    return subprocess.run(
        alone, env=environment(home), cwd=notes.parent, capture_output=True, text=True, check=False
    )


def outside(notes: Path) -> list[str]:
    """Addresses beyond loopback."""
    found = ADDRESS.findall(notes.read_text(encoding="utf-8", errors="replace"))
    return sorted({it for it in found if not it.startswith("127.") and it != "::1"})


@pytest.fixture(autouse=True)
def _can_be_isolated(tmp_path: Path) -> None:
    if not all(map(shutil.which, ("unshare", "ip", "strace"))):
        pytest.skip("needs the programs unshare, ip and strace")
    tried = isolated(["true"], tmp_path, tmp_path / "tried")
    if tried.returncode:
        pytest.skip(f"no network namespace or no tracing here: {tried.stderr.strip()}")


@pytest.fixture
def home(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path / "home"
    shutil.copytree(sample_store(tmp_path_factory.getbasetemp()).home, folder)
    build_catalog(Store(folder))
    return folder


def test_an_attempt_to_call_out_is_noticed(tmp_path: Path) -> None:
    code = "import socket; socket.socket(type=socket.SOCK_DGRAM).connect_ex(('192.0.2.1', 53))"
    isolated(["/usr/bin/env", "python3", "-c", code], tmp_path, tmp_path / "notes")
    assert outside(tmp_path / "notes") == ["192.0.2.1"]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", READING, ids=lambda arguments: arguments[0])
def test_no_reading_command_calls_out(
    home: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = isolated([*LCE, *arguments], home, tmp_path / "notes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert outside(tmp_path / "notes") == []


@pytest.mark.long
def test_no_server_calls_out_from_its_start_to_its_end(home: Path, tmp_path: Path) -> None:
    lce = f"{LCE[0]} -c '{LCE[2]}'"
    ports = f"--port {unused_port()} --mlflow-port {unused_port()}"
    both = f"{lce} up {ports} && {lce} up && {lce} down"
    done = isolated(["sh", "-c", both], home, tmp_path / "notes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert outside(tmp_path / "notes") == []


@pytest.mark.long
def test_no_run_calls_out(tmp_path: Path) -> None:
    text = tmp_path / "text"
    library_text(text)
    run = [*LCE, "run", write_study(tmp_path), "--data-folder", f"text={text}"]
    done = isolated(run, tmp_path / "home", tmp_path / "notes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert outside(tmp_path / "notes") == []
