"""A Prefect server for one `lce run`, on a free loopback port.

A server takes seconds to start: `start` returns at once and imports no Prefect, and `wait_ready`
waits until the server answers. The server runs under `tasks.supervisor`, so no process remains,
even after kill -9 of the run. It uses the same database as `lce up`, whose pages therefore show
past runs. Its secret exists only in the memory of the server and of this process.

If the server dies, a thread restarts it on the same port. Prefect's client finds it there and sends
the pending records. After `MOST_FAILED_STARTS` consecutive failed starts the run continues without
a server.
"""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from filelock import FileLock, Timeout

from flows.servers.daemons import answers, environment, find, log_path, status, tail, workplace
from flows.servers.guarded_prefect import client_auth, command, settings
from flows.servers.ports import LOOPBACK, free_port
from flows.servers.prefect_database import mend_prefect
from lce_core.access import new_secret, server_secret
from lce_core.errors import ServiceError
from tasks import supervisor

START_SECONDS = 120.0
STOP_SECONDS = 5.0
WATCH_SECONDS = 0.5
MOST_FAILED_STARTS = 3
"""Consecutive failed starts after which a run ends with an error or, if it has begun, continues
without a server."""

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
            "CANCELLATION_CLEANUP",
            "FOREMAN",
            "LATE_RUNS",
            "PAUSE_EXPIRATIONS",
            "SCHEDULER",
            "TRIGGERS",
        )
    },
}


class TemporaryServer:
    """The Prefect server of a run: a server that is already running, or one started for the run."""

    def __init__(self, home: Path, tell: Callable[[str], None] = lambda text: None) -> None:
        """Create the object; `start` starts the server.

        Args:
          tell: receives a message for the user when the server dies for the first time, and when
            it cannot be restarted.
        """
        self.home = home.absolute()
        self.url = ""
        self.secret = ""
        """Empty for a server at the user's PREFECT_API_URL."""
        self.started_here = False
        """True if `close` stops the server."""
        self.log = log_path(self.home, "temporary-server")
        self._tell = tell
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = threading.Event()
        self._died = False
        self._watch: threading.Thread | None = None
        # Two servers must not migrate the same new database at the same time.
        self._lock = FileLock(workplace(self.home) / ".starting.lock", thread_local=False)

    def start(self) -> None:
        """Find a running server or start one; do not wait until it answers."""
        self.url, self.secret = _existing(self.home)
        if not self.url:
            self.started_here, self.secret = True, new_secret()
            # A Timeout means that another server of this home is starting. `wait_ready` then waits
            # until it has started, and only then starts this object's server.
            with contextlib.suppress(Timeout):
                self._lock.acquire(timeout=0)
                self._launch()

    def wait_ready(self) -> str:
        """Wait until the API answers, and return its URL."""
        if not self.started_here:
            return self.url
        try:
            with self._lock.acquire(timeout=START_SECONDS):
                if self._become_healthy():
                    self._watch = threading.Thread(target=self._keep_up, daemon=True)
                    self._watch.start()
                    return self.url
        except Timeout:
            raise ServiceError(
                self._lock.lock_file,
                f"a Prefect server of {self.home} that another lce command has been starting for"
                f" {START_SECONDS:.0f} s",
                f"a start within {START_SECONDS:.0f} s",
                "wait for that command, or run `lce doctor`",
            ) from None
        finally:
            self._lock.release(force=True)
        raise ServiceError(
            f"Prefect's server on {LOOPBACK}",
            "no answer",
            "a running server",
            f"run `lce doctor`; {self.log} ends with these lines",
            tail(self.log),
        )

    def answers(self) -> bool:
        """Return True if the expected server, and no other one on its port, answers."""
        health = f"{self.url}/health"
        if self.secret:
            return answers(health, self.secret)
        return status(health, _user_credentials()) == 200

    @property
    def was_lost(self) -> bool:
        """True if the server does not answer, or has died at least once, even if restarted."""
        return self._died or not self.answers()

    def comes_back(self) -> bool:
        """Wait until a dead server, which a thread restarts, answers; return True if it does."""
        watch, limit = self._watch, time.monotonic() + START_SECONDS
        while watch and watch.is_alive() and time.monotonic() < limit:
            if self.answers():
                return True
            time.sleep(0.1)
        return False

    def close(self) -> None:
        self._closing.set()
        if self._watch:
            self._watch.join()
        self._stop()
        self._lock.release(force=True)

    def _become_healthy(self) -> bool:
        limit = time.monotonic() + START_SECONDS
        # A start fails if another process takes the port first, or someone kills the server.
        for _ in range(MOST_FAILED_STARTS):
            process = self._process or self._launch()
            while process.poll() is None and time.monotonic() < limit:
                if self.answers():
                    return True
                time.sleep(0.02)
            self._stop()
        return False

    def _keep_up(self) -> None:
        """Restart the server whenever it dies, until `close` is called (in a thread)."""
        failed = 0
        while not self._closing.wait(WATCH_SECONDS):
            if self._process and self._process.poll() is None:
                failed = 0 if failed and self.answers() else failed
                continue
            self._stop()  # also kills processes that the server left behind
            if failed == MOST_FAILED_STARTS:
                self._tell(
                    "Prefect's server could not be restarted; the run continues without it."
                    f" For the cause see {self.log}."
                )
                return
            if not self._died:
                self._tell("Prefect's server died and is being restarted.")
            failed, self._died = failed + 1, True
            self._launch(urlsplit(self.url).port)

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()  # forwarded to the server, which writes its pending records
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        process.communicate()  # closes the lifeline, so the supervisor kills what is left

    def _launch(self, port: int | None = None) -> subprocess.Popen[bytes]:
        mend_prefect(self.home)
        port = port or free_port()
        self.url = f"http://{LOOPBACK}:{port}/api"
        with self.log.open("ab" if self._watch else "wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(supervisor.__file__)), *command(port)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env={
                    **environment(self.home),
                    **_SETTINGS,
                    **settings(self.url, self.secret),
                },
                cwd=workplace(self.home),
                # Ctrl-C must reach only the run, which then stops the server.
                start_new_session=True,
            )
        return self._process


@contextlib.contextmanager
def temporary_server(
    home: Path, tell: Callable[[str], None] = lambda text: None
) -> Iterator[TemporaryServer]:
    """Start a run's server, yield it, and stop it at the end of the `with` block."""
    server = TemporaryServer(home, tell)
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

    Raises:
      ServiceError: if no server answers there, or it refuses the user's credentials.
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
    if code in (401, 403):
        raise ServiceError(
            "PREFECT_API_URL",
            f"{given}, which answers with status {code}: it refuses your credentials",
            "a server that accepts PREFECT_API_AUTH_STRING or PREFECT_API_KEY",
            "correct the variable, or unset PREFECT_API_URL: `lce run` then starts its own server",
        )
    if code != 200:
        raise ServiceError(
            "PREFECT_API_URL",
            f"{given}, where no Prefect server answers",
            "the address of a running server",
            "start the server, or unset PREFECT_API_URL: `lce run` then starts its own server",
        )
    return given, ""


def _user_credentials() -> dict[str, str]:
    """Return the Authorization header that Prefect's clients send for this user; {} if none."""
    if user_and_password := os.environ.get("PREFECT_API_AUTH_STRING"):
        encoded = base64.b64encode(user_and_password.encode()).decode()
        return {"Authorization": f"Basic {encoded}"}
    key = os.environ.get("PREFECT_API_KEY")
    return {"Authorization": f"Bearer {key}"} if key else {}
