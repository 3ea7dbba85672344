"""A Prefect server for one `lce run`, on a free loopback port.

A flow needs a server; without one, most records of its tasks are lost. A server takes seconds to
start, so starting has two phases: `start` returns at once and imports no Prefect, `wait_ready`
waits for the first healthy answer. The server runs under `tasks.supervisor`, and this process holds
the supervisor's lifeline. However the run or the supervisor ends, kill -9 included, no process
remains. The server shares its database with `lce up`, which therefore shows past runs. Its secret
is new and exists only in the memory of the two processes.

If the server dies, it is restarted on the same port. Prefect's client finds it there and sends its
pending records. After `MOST_FAILED_STARTS` consecutive failures the run continues without a server.
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
"""Poll interval that checks whether the server still runs."""
MOST_FAILED_STARTS = 3
"""Attempts to start the server. If all fail at the start of a run, the run ends with an error;
later, it continues without a server."""

_SETTINGS = {
    "PREFECT_SERVER_UI_ENABLED": "false",
    # Two runs may share the SQLite database. With this timeout the second one waits for the lock
    # instead of failing.
    "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
    # Disable services for schedules, automations and workers; such a run has none of these.
    # Services that record events and task runs or free concurrency slots stay enabled.
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
    """The Prefect API that a run uses: a server that already runs, or one started for the run."""

    def __init__(self, home: Path, tell: Callable[[str], None] = lambda text: None) -> None:
        """Make the object without starting anything.

        Args:
          home: the store whose database the server uses.
          tell: receives a sentence when the server is lost for the first time, and when it cannot
            be restarted.
        """
        self.home = home.absolute()
        self.url = ""
        self.secret = ""
        """Secret that the server requires; empty for a server of the user's own."""
        self.started_here = False
        """True if this object started a server, which `close` then stops."""
        self.log = log_path(self.home, "temporary-server")
        self._tell = tell
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = threading.Event()
        self._died = False
        self._watch: threading.Thread | None = None
        # Two servers must not migrate the same new database at the same time.
        self._lock = FileLock(workplace(self.home) / ".starting.lock", thread_local=False)

    def start(self) -> None:
        """Find a running server or start one, without waiting for it."""
        self.url, self.secret = _existing(self.home)
        if not self.url:
            self.started_here, self.secret = True, new_secret()
            # At a Timeout another server of this home is starting; `wait_ready` then starts ours.
            with contextlib.suppress(Timeout):
                self._lock.acquire(timeout=0)
                self._launch()

    def wait_ready(self) -> str:
        """Wait until the API answers, and return its URL.

        Raises:
          ServiceError: if the server does not start; quotes the end of its log.
        """
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
                f"another server of {self.home} that has been starting for {START_SECONDS:.0f} s",
                "a server that is up by then",
                "run `lce doctor`",
            ) from None
        finally:
            self._lock.release(force=True)
        raise ServiceError(
            f"Prefect's server on {LOOPBACK}",
            "a process that did not start",
            "a server that answers",
            f"run `lce doctor`; {self.log} ends with these lines",
            tail(self.log),
        )

    def answers(self) -> bool:
        """Return True if the server answers and is the right one.

        A server of this home must prove that it knows the secret. A server of the user's own must
        accept the user's credentials.
        """
        health = f"{self.url}/health"
        return answers(health, self.secret) if self.secret else status(health, _own()) == 200

    @property
    def was_lost(self) -> bool:
        """True if the server died at any time, or does not answer now."""
        return self._died or not self.answers()

    def comes_back(self) -> bool:
        """Wait for a server that is being restarted; return True once it answers.

        Returns False if the restarts were abandoned or `START_SECONDS` have passed.
        """
        watch, limit = self._watch, time.monotonic() + START_SECONDS
        while watch and watch.is_alive() and time.monotonic() < limit:
            if self.answers():
                return True
            time.sleep(0.1)
        return False

    def close(self) -> None:
        """Stop the server and its descendants if this object started it."""
        self._closing.set()
        if self._watch:
            self._watch.join()
        self._stop()
        self._lock.release(force=True)

    def _become_healthy(self) -> bool:
        limit = time.monotonic() + START_SECONDS
        # Another process may take the free port before the server binds it, or the server may be
        # killed.
        for _ in range(MOST_FAILED_STARTS):
            process = self._process or self._launch()
            while process.poll() is None and time.monotonic() < limit:
                if self.answers():
                    return True
                time.sleep(0.02)
            self._stop()
        return False

    def _keep_up(self) -> None:
        """Restart the server whenever it dies, until the run ends. Runs in a thread of its own."""
        failed = 0
        while not self._closing.wait(WATCH_SECONDS):
            if self._process and self._process.poll() is None:
                failed = 0 if failed and self.answers() else failed
                continue
            self._stop()  # ends what the supervisor left
            if failed == MOST_FAILED_STARTS:
                self._tell(
                    f"Prefect's server does not start again; the run goes on without it. {self.log}"
                    " says why."
                )
                return
            if not self._died:
                self._tell("Prefect's server died; it is started again.")
            failed, self._died = failed + 1, True
            self._launch(urlsplit(self.url).port)

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()  # forwarded to the server, which writes its pending records
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        process.communicate()  # closes the lifeline, and the supervisor kills what is left

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
    """Yield a started server and stop it at the end; call `wait_ready` before using it."""
    server = TemporaryServer(home, tell)
    try:
        server.start()
        yield server
    finally:
        server.close()


def client_settings(home: Path, url: str, secret: str = "") -> dict[str, str]:
    """Return the environment variables that connect a Prefect client to the API at `url`.

    Set it before Prefect is imported. Without a secret the server is the user's own, and so are the
    credentials in the environment.
    """
    own = environment(home.absolute())
    kept = ("NO_PROXY", "PREFECT_HOME", "PREFECT_PLUGINS_ENABLED", "DO_NOT_TRACK")
    return {**{key: own[key] for key in kept}, "PREFECT_API_URL": url, **client_auth(secret)}


def _existing(home: Path) -> tuple[str, str]:
    """Return URL and secret of PREFECT_API_URL or of `lce up`; empty strings if neither exists.

    Raises:
      ServiceError: if PREFECT_API_URL is set and no server answers there, or it refuses the user.
    """
    service = find(home, "server")
    ours = str(service.url) if service else ""
    secret = server_secret(home, "prefect") if service else ""
    given = os.environ.get("PREFECT_API_URL", "").rstrip("/")
    if given in ("", ours):
        if ours and answers(f"{ours}/health", secret):
            return ours, secret
        if not given:
            return "", ""
    code = status(f"{given}/health", _own())
    if code in (401, 403):
        raise ServiceError(
            "PREFECT_API_URL",
            f"{given}, which answers {code}: it refuses PREFECT_API_AUTH_STRING or PREFECT_API_KEY",
            "a server that lets you in",
            "correct the credentials, or unset the variable: `lce run` then starts a server of its"
            " own",
        )
    if code != 200:
        raise ServiceError(
            "PREFECT_API_URL",
            f"{given}, where no Prefect server answers",
            "the address of a running server",
            "start it, or unset the variable: `lce run` then starts one of its own",
        )
    return given, ""


def _own() -> dict[str, str]:
    """Return the Authorization header that Prefect's clients would send for this user, if any."""
    if own := os.environ.get("PREFECT_API_AUTH_STRING"):
        return {"Authorization": f"Basic {base64.b64encode(own.encode()).decode()}"}
    key = os.environ.get("PREFECT_API_KEY")
    return {"Authorization": f"Bearer {key}"} if key else {}
