"""The MLflow server of `lce up`, alone."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from flows.servers.daemons import answers, environment
from lce_core.access import SECRET_VARIABLE
from tests.support.ports import unused_port
from tests.support.studies import wait_until


@contextlib.contextmanager
def guarded_mlflow(home: Path, secret: str, settings: Mapping[str, str]) -> Iterator[str]:
    """Serve the home's database; yield the server's address."""
    port = unused_port()
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "tasks.tracking.guarded_server", str(home), str(port)]
    env = {**environment(home), SECRET_VARIABLE: secret, **settings}
    with (
        (home / "server.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log, env=env, cwd=home) as server,
    ):
        try:
            wait_until(lambda: answers(f"{address}/health"))
            yield address
        finally:
            server.terminate()
