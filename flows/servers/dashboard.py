"""Start the dashboard: this process becomes its server; a second one keeps the catalog fresh."""

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
    """Replace this process with a server on loopback that runs until Ctrl-C or SIGTERM.

    Args:
      home: the store whose catalog is shown.
      port: loopback port.
      refresh: whether a second process updates the catalog from the store.

    Raises:
      SpecError: if the port is taken or out of range.
    """
    require_free(port, "--port")
    catalog = mended(home)
    if refresh:
        _keep_fresh(home)
    # The dashboard only reads the catalog. Replacing this process avoids forwarding signals to a
    # child.
    sys.stdout.flush()
    command = [sys.executable, "-m", "dashboards.app", "--port", str(port)]
    environment = of_own_code() | {SECRET_VARIABLE: server_secret(home, "dashboard")}
    os.execve(sys.executable, [*command, "--catalog", str(catalog)], environment)


def _keep_fresh(home: Path) -> None:
    """Start the process that refreshes the catalog.

    It exits when its standard input closes. The write end of that pipe is inheritable, so the
    server that replaces this process holds it open.
    """
    lifeline, held = os.pipe()
    os.set_inheritable(held, True)
    command = [sys.executable, "-m", "tasks.fresh_catalog", str(home)]
    subprocess.Popen(command, stdin=lifeline, env=of_own_code())
    os.close(lifeline)
