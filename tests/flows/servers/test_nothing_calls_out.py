"""No command or server tries to reach anything beyond this machine: strace records the addresses
that it and its children try, in a network namespace that has loopback only.
"""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.catalogs.sample_store import STUDY
from tests.support.ports import unused_port
from tests.support.studies import LCE, TINY, environment, new_home, write_study

TRACE = "trace=connect,sendto,sendmsg,sendmmsg"
ADDRESS = re.compile(r'(?:inet_addr\("|inet_pton\(AF_INET6, ")([^"]+)"')
PAGES = ("matrix", "scores", "answers", "against", "papers", "sql")
READING = (
    ("plan", "smoke"),
    ("sql", "SELECT count(*) FROM cells"),
    ("report", STUDY),
    ("claims", STUDY),
)
SERVERS = (("up", "--port", "SERVER", "--mlflow-port", "MLFLOW"), ("down",))
FEW = {key: [TINY[key][0], TINY[key][-1]] for key in ("methods", "benchmarks")}
"""A frozen and a trained method; text and prompts."""
VISIT = """
import socket, sys, time
from pathlib import Path
from playwright.sync_api import sync_playwright
chromium, line, *pages = sys.argv[1:]
end = time.monotonic() + 600
while not (words := Path(line).read_text().split()):
    assert time.monotonic() < end, "the dashboard printed no link"
    time.sleep(0.1)
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(
        executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
    )
    page = browser.new_page()
    page.set_default_timeout(600_000)
    address = words[0].split("/lce-login")[0]
    port = int(address.rpartition(":")[2])
    while socket.socket().connect_ex(("127.0.0.1", port)):  # the link is printed before it listens
        assert time.monotonic() < end, "the dashboard does not listen"
        time.sleep(0.1)
    page.goto(words[0])
    page.get_by_test_id("stAppViewContainer").wait_for()
    for name in pages:
        page.goto(f"{address}/{name}" if name != "matrix" else address)
        page.get_by_role("heading", name=" toy_llama").wait_for()
    # Another origin: Streamlit asks for its own external address before it decides on one.
    page.goto("data:text/html,")
    page.evaluate("address => new Promise(done => {"
        "const socket = new WebSocket(address.replace('http', 'ws') + '/_stcore/stream');"
        "socket.onopen = socket.onerror = done;"
        "})", address)
"""


def isolated(command: list[str], home: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    alone = ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
    return subprocess.run(
        alone, env=environment(home), cwd=folder, capture_output=True, text=True, check=False
    )


def traced(command: list[str], notes: Path) -> list[str]:
    return ["strace", "-f", "--seccomp-bpf", "-e", TRACE, "-o", str(notes), *command]


def outside(notes: Path) -> list[str]:
    found = ADDRESS.findall(notes.read_text(encoding="utf-8", errors="replace"))
    return sorted({it for it in found if not it.startswith("127.") and it != "::1"})


@pytest.fixture(scope="module", autouse=True)
def _can_be_isolated(tmp_path_factory) -> None:
    if not all(map(shutil.which, ("unshare", "ip", "strace"))):
        pytest.skip("needs the programs unshare, ip and strace")
    folder = tmp_path_factory.mktemp("tried")
    tried = isolated(traced(["true"], folder / "notes"), folder, folder)
    if tried.returncode:
        pytest.skip(f"no network namespace or no tracing here: {tried.stderr.strip()}")


@pytest.fixture(scope="module")
def home(sample, tmp_path_factory) -> Path:
    return shutil.copytree(sample, tmp_path_factory.mktemp("traced") / "home")


def test_an_attempt_to_call_out_is_noticed(tmp_path):
    code = "import socket; socket.socket(type=socket.SOCK_DGRAM).connect_ex(('192.0.2.1', 53))"
    command = traced(["/usr/bin/env", "python3", "-c", code], tmp_path / "notes")
    isolated(command, tmp_path, tmp_path)
    assert outside(tmp_path / "notes") == ["192.0.2.1"]


@pytest.mark.slow
@pytest.mark.parametrize("commands", [READING, SERVERS], ids=["reading", "servers"])
def test_no_command_and_no_server_calls_out(commands, home, tmp_path):
    ports = {"SERVER": str(unused_port()), "MLFLOW": str(unused_port())}
    words = ([*LCE, *(ports.get(word, word) for word in command)] for command in commands)
    shell = " && ".join(map(shlex.join, words))
    done = isolated(traced(["sh", "-c", shell], tmp_path / "notes"), home, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert outside(tmp_path / "notes") == []


@pytest.mark.slow
def test_the_dashboard_calls_nobody_while_its_pages_are_read(home, tmp_path, chromium):
    serve = [*LCE, "dashboard", "--port", str(unused_port()), "--no-refresh"]
    # strace itself ignores SIGTERM while it traces.
    server = traced(["sh", "-c", 'echo $$ > pid; exec "$@"', "sh", *serve], tmp_path / "notes")
    visit = [sys.executable, "-c", VISIT, chromium, "link", *PAGES]
    both = f": > link; {shlex.join(server)} > link & {shlex.join(visit)}; visited=$?"
    stop = "kill $(cat pid); wait; exit $visited"
    done = isolated(["sh", "-c", f"{both}; {stop}"], home, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert outside(tmp_path / "notes") == []


@pytest.mark.slow
def test_no_run_calls_out(migrated, library, tmp_path):
    home = new_home(migrated, tmp_path / "home")
    study = write_study(tmp_path, base_models=[{"name": "toy_llama", "steps": 2}], **FEW)
    run = [*LCE, "run", study, "--data-folder", f"text={library}"]
    done = isolated(traced(run, tmp_path / "notes"), home, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert outside(tmp_path / "notes") == []
