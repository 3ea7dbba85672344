"""A Prefect server for one `lce run`, on a free loopback port.

A server takes seconds to start: `start` returns at once and imports no Prefect, and `wait_ready`
waits until the server answers. The server runs under `tasks.supervisor`, so no process remains,
even after kill -9 of the run. It uses the same database as `lce up`, whose pages therefore show
past runs. Its secret exists only in the memory of the server and of this process. A run whose
server dies continues without it.
"""

import base64
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from flows.servers.daemons import (
    START_SECONDS,
    answers,
    environment,
    find,
    log_path,
    status,
    wait_until,
    workplace,
)
from flows.servers.guarded_prefect import client_auth, command, mend_prefect, settings
from flows.servers.ports import LOOPBACK
from lce_core.access import new_secret, server_secret
from lce_core.errors import ServiceError
from tasks import supervisor

STOP_SECONDS = 5.0
MAX_STARTS = 3
"""Starts of a server that somebody kills before it answers."""

_SETTINGS = {
    "PREFECT_SERVER_UI_ENABLED": "false",
    # Servers of several runs may share the SQLite database. With this timeout in seconds they wait
    # for its lock instead of failing.
    "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
    # A run in the user's process has no schedules, automations or workers, so disable their
    # services. Services that record events and task runs or free concurrency slots stay enabled.
    **{
        f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false"
        for name in (
            *("CANCELLATION_CLEANUP", "FOREMAN", "LATE_RUNS"),
            *("PAUSE_EXPIRATIONS", "SCHEDULER", "TRIGGERS"),
        )
    },
}


class TemporaryServer:
    """The Prefect server of a run: a server that is already running, or one started for the run."""

    def __init__(self, home: Path) -> None:
        self.home = home.absolute()
        self.url = ""
        self.secret = ""
        """Empty for a server at the user's PREFECT_API_URL."""
        self.started_here = False
        """True if `close` stops the server."""
        self.log = log_path(self.home, "temporary-server")
        self._process: subprocess.Popen[bytes] | None = None
        self._reserved: socket.socket | None = None
        self._command: list[str] = []
        # Two servers must not migrate the same new database at the same time.
        self._lock = FileLock(workplace(self.home) / ".starting.lock", thread_local=False)

    def start(self) -> None:
        """Find a running server or start one; do not wait until it answers."""
        self.url, self.secret = _existing(self.home)
        if not self.url:
            self.started_here, self.secret = True, new_secret()
            # A bound socket that does not listen keeps the port from other programs, but not from
            # the server: both set SO_REUSEADDR.
            self._reserved = socket.socket()
            self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._reserved.bind((LOOPBACK, 0))
            port = int(self._reserved.getsockname()[1])
            self.url, self._command = f"http://{LOOPBACK}:{port}/api", command(port)
            self._launch()

    def wait_ready(self) -> str:
        """Wait until the API answers, and return its URL; start a server that has died again."""
        for attempt in range(1, MAX_STARTS + 1) if self.started_here else ():
            if not self._is_alive():
                self._launch()
            try:
                wait_until(
                    "Prefect's server", self.answers, self._is_alive, self.log, START_SECONDS
                )
                break
            except ServiceError:
                if self._is_alive() or attempt == MAX_STARTS:
                    raise
            finally:
                self._lock.release(force=True)
        return self.url

    def answers(self) -> bool:
        """Return True if the expected server, and no other one on its port, answers."""
        health = f"{self.url}/health"
        if self.secret:
            return answers(health, self.secret)
        return status(health, _user_credentials()) == 200

    def close(self) -> None:
        self._stop()
        if self._reserved:
            self._reserved.close()
        self._lock.release(force=True)

    def _stop(self) -> None:
        if self._process:
            self._process.terminate()  # forwarded to the server, which writes its pending records
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
            self._process.communicate()  # closes the lifeline: the supervisor kills what is left

    def _is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _launch(self) -> None:
        try:
            self._lock.acquire(timeout=START_SECONDS)
        except Timeout:
            raise ServiceError(
                self._lock.lock_file,
                f"a Prefect server of {self.home} that another lce command has been starting for"
                f" {START_SECONDS:.0f} s",
                f"a start within {START_SECONDS:.0f} s",
                "wait for that command, or run `lce doctor`",
            ) from None
        self._stop()
        mend_prefect(self.home)
        with self.log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(supervisor.__file__)), *self._command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={**environment(self.home), **_SETTINGS, **settings(self.url, self.secret)},
                cwd=workplace(self.home),
                # Ctrl-C must reach only the run, which then stops the server.
                start_new_session=True,
            )


@contextlib.contextmanager
def temporary_server(home: Path) -> Iterator[TemporaryServer]:
    server = TemporaryServer(home)
    try:
        server.start()
        yield server
    finally:
        server.close()


def client_settings(home: Path, url: str, secret: str = "") -> dict[str, str]:
    """Return the variables for a client of the API at `url`, to be set before importing Prefect.

    An empty `secret` means the user's own server and credentials.
    """
    ours = environment(home.absolute())
    kept = ("PREFECT_HOME", "PREFECT_PLUGINS_ENABLED", "DO_NOT_TRACK")
    return {**{key: ours[key] for key in kept}, "PREFECT_API_URL": url, **client_auth(secret)}


def _existing(home: Path) -> tuple[str, str]:
    """Return URL and secret of the server at PREFECT_API_URL, or of `lce up`; else empty strings.

    The secret of another server at PREFECT_API_URL is empty.
    """
    service = find(home, "server")
    own_url = str(service.url) if service else ""
    secret = server_secret(home, "prefect") if service else ""
    given = os.environ.get("PREFECT_API_URL", "").rstrip("/")
    if given in ("", own_url):
        if own_url and answers(f"{own_url}/health", secret):
            return own_url, secret
        if not given:
            return "", ""
    code = status(f"{given}/health", _user_credentials())
    if code == 200:
        return given, ""
    got, expected = f"{given}, where no Prefect server answers", "the address of a running server"
    remedy = "start the server"
    if code in (401, 403):
        got = f"{given}, which answers with status {code}: it refuses your credentials"
        expected = "a server that accepts PREFECT_API_AUTH_STRING or PREFECT_API_KEY"
        remedy = "correct the variable"
    remedy += ", or unset PREFECT_API_URL: `lce run` then starts its own server"
    raise ServiceError("PREFECT_API_URL", got, expected, remedy)


def _user_credentials() -> dict[str, str]:
    if user_and_password := os.environ.get("PREFECT_API_AUTH_STRING"):
        encoded = base64.b64encode(user_and_password.encode()).decode()
        return {"Authorization": f"Basic {encoded}"}
    key = os.environ.get("PREFECT_API_KEY")
    return {"Authorization": f"Bearer {key}"} if key else {}
