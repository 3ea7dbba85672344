"""Background processes ("services") that outlive the command which started them.

Each service has a state file home/services/<name>.json and a log home/logs/<name>.log. A running
process counts as the service only if its pid and start time equal those in the state file, so a
reused pid is never mistaken for the service. All processes started here have LCE_SERVICE=<home> in
their environment. Their descendants inherit the variable, so `stop_leftovers` also finds processes
that have lost their parent.
"""

import contextlib
import functools
import hmac
import http.client
import json
import os
import secrets
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import urlsplit

import psutil

from flows.servers.guarded_prefect import prefect_database
from lce_core.access import PROOF, authorization, proof
from lce_core.environment import PREFECT_RESTRICTING, for_child
from lce_core.errors import ServiceError
from lce_core.store.lease import running, started
from lce_core.store.odd_files import make_folder, make_way, read_mapping
from lce_core.store.records import write_json
from tasks.sqlite_damage import sqlite_url

START_SECONDS = 600.0
"""Limit for a server that hangs. A start takes about 5 s, on a busy machine more than 120 s."""
MARK = "LCE_SERVICE"
NAMES = ("server", "mlflow", "worker")
"""Services of `lce up`, in the order in which they start."""
GRACE_SECONDS = 5.0
"""A process that is still running this long after SIGTERM is killed."""


@dataclass(frozen=True)
class Service:
    """A background process of `lce up` that was running when this object was created."""

    name: str
    pid: int
    started: float
    """Seconds since the system booted."""
    port: int | None
    url: str | None
    log: str


def environment(home: Path) -> dict[str, str]:
    """Return the environment for a server of `home`, based on this process's environment.

    The user's PREFECT_* and MLFLOW_* variables configure other servers. Only the variables in
    `PREFECT_RESTRICTING` are kept.
    """
    inherited = {
        key: value
        for key, value in for_child(os.environ).items()
        if key in PREFECT_RESTRICTING or not key.startswith(("PREFECT_", "MLFLOW_"))
    }
    return {
        **inherited,
        "LCE_HOME": str(home),
        "DO_NOT_TRACK": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "PREFECT_HOME": str(home / "prefect"),
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": sqlite_url(
            prefect_database(home), "sqlite+aiosqlite"
        ),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_PLUGINS_ENABLED": "false",
    }


def launch(
    home: Path,
    name: str,
    command: Sequence[str],
    settings: Mapping[str, str],
    port: int | None = None,
    url: str | None = None,
) -> Service:
    log = log_path(home, name)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**environment(home), **settings, MARK: str(home)},
            cwd=workplace(home),
            start_new_session=True,
        )
    service = Service(name, process.pid, started(process.pid), port, url, str(log))
    process.returncode = 0  # avoids Popen's warning: this program never waits for the process
    state = _state_file(home, name)
    make_folder(state.parent)
    write_json(state, asdict(service))
    return service


def find(home: Path, name: str) -> Service | None:
    try:
        content = read_mapping(_state_file(home, name))
        types = get_type_hints(Service)
        if not all(isinstance(content[key], kind) for key, kind in types.items()):
            return None
        service = Service(**{key: content[key] for key in types})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return service if process_of(service) else None


def process_of(service: Service) -> psutil.Process | None:
    return running(service.pid, service.started)


def stop(home: Path, services: Sequence[Service]) -> None:
    """Stop the services and their descendants: SIGTERM first, SIGKILL after `GRACE_SECONDS`."""
    roots = [process for service in services if (process := process_of(service))]
    tree = [*roots, *(child for root in roots for child in _children(root))]
    for root in roots:
        with contextlib.suppress(psutil.NoSuchProcess):
            root.terminate()
    _, stubborn = psutil.wait_procs(tree, timeout=GRACE_SECONDS)
    _kill([*stubborn, *(child for process in stubborn for child in _children(process))])
    for service in services:
        _state_file(home, service.name).unlink(missing_ok=True)


def stop_leftovers(home: Path) -> None:
    while processes := marked(home):
        _kill(processes)


def marked(home: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            ours = process.environ().get(MARK) == str(home)
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def wait_until(
    name: str, ready: Callable[[], bool], alive: Callable[[], object], log: Path, seconds: float
) -> None:
    limit = time.monotonic() + seconds
    while not ready():
        if not alive():
            problem = "a process that ended before it was ready", "a running server"
        elif time.monotonic() > limit:
            problem = f"no answer after {seconds:.0f} s", "a server that answers"
        else:
            time.sleep(0.05)
            continue
        raise ServiceError(name, *problem, f"read {log}, which ends with these lines", tail(log))


def answers(url: str, secret: str = "") -> bool:
    """Return True if a server answers a GET of `url` with status 200.

    With a secret, the server must first prove that it knows the secret: another user may have taken
    the port.
    """
    if secret:
        server, nonce = urlsplit(url), secrets.token_urlsafe()
        code, body = _get(urllib.request.Request(f"http://{server.netloc}{PROOF}?{nonce}"))
        expected = proof(secret, server.port or 80, nonce)
        if code != 200 or not hmac.compare_digest(body, expected.encode()):
            return False
    return status(url, _headers(secret)) == 200


def status(url: str, headers: Mapping[str, str]) -> int:
    return _get(urllib.request.Request(url, headers=dict(headers)))[0]


def ask(url: str, body: object = None, *, secret: str = "") -> Any:
    """Return the JSON response to a GET of `url`, or a POST of `body`; None for status 404."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **_headers(secret)}
    request = urllib.request.Request(url, data, headers)
    try:
        with _direct().open(request, timeout=30) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 404:
                return None
            raise ServiceError(
                url,
                f"HTTP {error.code}: {error.read()[:500]!r}",
                "a successful response of Prefect's server",
                "run `lce doctor`",
            ) from None


def _get(request: urllib.request.Request) -> tuple[int, bytes]:
    # URLError is a subclass of OSError. A server that shuts down may end a response early, which
    # raises HTTPException.
    try:
        with _direct().open(request, timeout=5) as response:
            return response.status, response.read(1000)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, b""
    except (OSError, http.client.HTTPException):
        return 0, b""


@functools.cache
def _direct() -> urllib.request.OpenerDirector:
    """Return an HTTP client that ignores the user's proxy, which cannot reach the loopback.

    From Python 3.12 on, creating it reads variables of TLS, which `restrict` first removes.
    """
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _headers(secret: str) -> dict[str, str]:
    return {"Authorization": authorization(secret)} if secret else {}


def log_path(home: Path, name: str) -> Path:
    log = make_folder(home / "logs") / f"{name}.log"
    make_way(log)
    return log


def workplace(home: Path) -> Path:
    """Create home/prefect, from where Prefect reads no .env, prefect.toml or pyproject.toml."""
    return make_folder(home / "prefect")


def tail(log: Path) -> str:
    try:
        content = log.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return str(error)
    return "\n".join(content.splitlines()[-15:])


def _state_file(home: Path, name: str) -> Path:
    return home / "services" / f"{name}.json"


def _children(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=GRACE_SECONDS)
