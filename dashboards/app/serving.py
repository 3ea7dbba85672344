"""Streamlit's server on loopback, with nothing of it that leaves this machine."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from catalog.queries import open_catalog
from lce_core.access import Guard, login_link
from lce_core.errors import SpecError

ADDRESS = "127.0.0.1"
SCRIPT = Path(__file__).parent / "entry" / "script.py"
OPTIONS: dict[str, Any] = {
    "global.developmentMode": False,  # what it is where it lies in no site-packages
    "server.address": ADDRESS,
    "server.headless": True,  # opens no browser, asks for no e-mail address
    # A page of another name that points here, as in DNS rebinding, gets no answer.
    "server.allowedHosts": [ADDRESS, "localhost"],
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": False,
    "browser.serverAddress": ADDRESS,
    "client.toolbarMode": "minimal",
    "client.showErrorLinks": False,
    # Of each theme: a colour for both would be a theme of its own, light by day and by night.
    "theme.light.primaryColor": "#227b9d",
    "theme.dark.primaryColor": "#227b9d",  # a lighter one is too light for white words on it
    "logger.hideWelcomeMessage": True,
    "logger.level": "warning",
}
"""By Streamlit's names; they go before a config.toml of the user's."""


def serve(catalog: Path, port: int, secret: str) -> None:
    """Serves until SIGINT or SIGTERM.

    Args:
      catalog: the file, which may be replaced at any time.
      port: port on loopback; free.
      secret: what every request has to carry.

    Raises:
      SpecError: Streamlit is not installed, or there is no catalog.
    """
    require_streamlit()
    open_catalog(catalog).close()
    from starlette.middleware import Middleware
    from streamlit.starlette import App

    # Loaded before somebody waits for it: half of what the first view would take.
    for module in ("altair", "pandas", "streamlit.elements.vega_charts", "dashboards.app.shell"):
        importlib.import_module(module)
    app = App(SCRIPT, middleware=[Middleware(Guard, secret=secret, port=port)])
    sys.stdout.write(f"{login_link(f'http://{ADDRESS}:{port}', secret)}  (Ctrl-C stops it)\n")
    sys.stdout.flush()
    # The script's own place and arguments, which Streamlit takes from here.
    sys.argv = [str(SCRIPT), str(catalog)]
    # The server has shut down when the signal that ended it is raised again.
    with contextlib.suppress(KeyboardInterrupt):
        app.run(config={**OPTIONS, "server.port": port})


def require_streamlit(module: str = "streamlit") -> None:
    """Raises a SpecError unless the module is installed."""
    if importlib.util.find_spec(module) is None:
        raise SpecError(
            "lce dashboard",
            f"no {module}",
            "the packages of the extra `dashboard`",
            "run `make install` in the checkout",
        )
