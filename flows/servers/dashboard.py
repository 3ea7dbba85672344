"""The dashboard: a server that this process becomes, and one that keeps its catalog fresh."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from flows.servers.ports import require_free
from lce_core.access import SECRET_VARIABLE, server_secret
from tasks.mending import mended
from tasks.own_code import of_own_code


def become_dashboard(home: Path, port: int, *, refresh: bool) -> NoReturn:
    """Serves on loopback, in place of this process, until Ctrl-C or SIGTERM.

    Args:
      home: whose catalog is shown.
      port: on loopback.
      refresh: whether the catalog follows the store meanwhile.

    Raises:
      SpecError: the port is taken, or out of range.
    """
    require_free(port, "--port")
    catalog = mended(home)
    if refresh:
        _keep_fresh(home)
    # The dashboard knows the catalog alone. As there is one process, no signal needs passing on.
    sys.stdout.flush()
    command = [sys.executable, "-m", "dashboards.app", "--port", str(port)]
    environment = of_own_code() | {SECRET_VARIABLE: server_secret(home, "dashboard")}
    os.execve(sys.executable, [*command, "--catalog", str(catalog)], environment)


def _keep_fresh(home: Path) -> None:
    """Starts the process; it ends with its standard input, which whoever we become holds."""
    lifeline, held = os.pipe()
    os.set_inheritable(held, True)
    command = [sys.executable, "-m", "tasks.fresh_catalog", str(home)]
    subprocess.Popen(command, stdin=lifeline, env=of_own_code())
    os.close(lifeline)
