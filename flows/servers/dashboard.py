"""Run the dashboard in this process, and a second process that keeps the catalog up to date."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from flows.servers.ports import require_free
from lce_core.access import SECRET_VARIABLE, server_secret
from lce_core.environment import for_child
from tasks.mending import mended


def become_dashboard(home: Path, port: int, *, refresh: bool) -> NoReturn:
    """Replace this process by the dashboard's server (exec), which runs until Ctrl-C or SIGTERM."""
    require_free(port, "--port")
    catalog = mended(home)
    if refresh:
        # The process that updates the catalog exits when its standard input closes. The server that
        # replaces this process inherits the other end of the pipe.
        lifeline, write_end = os.pipe()
        os.set_inheritable(write_end, True)
        command = [sys.executable, "-m", "tasks.fresh_catalog", str(home)]
        subprocess.Popen(command, stdin=lifeline, env=for_child(os.environ))
        os.close(lifeline)
    # This process would have to forward its signals to a child process. Replacing this process
    # avoids that.
    sys.stdout.flush()
    command = [sys.executable, "-m", "dashboards.app", str(catalog), str(port)]
    environment = for_child(os.environ) | {SECRET_VARIABLE: server_secret(home, "dashboard")}
    os.execve(sys.executable, command, environment)
