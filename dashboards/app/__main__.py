"""Serve the dashboard until Ctrl-C or SIGTERM: `python -m dashboards.app CATALOG PORT`.

`lce dashboard` replaces its own process by this one. Nothing connects to other machines.
"""

import contextlib
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from catalog.queries import open_catalog
from lce_core.access import SECRET_VARIABLE, Guard, login_link, new_secret
from lce_core.errors import SpecError
from lce_core.terminal import guard_terminal

ADDRESS = "127.0.0.1"
SCRIPT = Path(__file__).parent / "entry" / "script.py"
OPTIONS: dict[str, Any] = {
    "global.developmentMode": False,  # Streamlit enables it when installed outside site-packages
    "server.address": ADDRESS,
    "server.headless": True,  # neither opens a browser nor asks for an e-mail address
    # Reject requests with another Host header, as in DNS rebinding.
    "server.allowedHosts": [ADDRESS, "localhost"],
    "server.fileWatcherType": "none",
    "browser.gatherUsageStats": False,
    "browser.serverAddress": ADDRESS,
    "client.toolbarMode": "minimal",
    "client.showErrorLinks": False,
    # Set per theme: one common colour would create a custom theme without a dark variant.
    "theme.light.primaryColor": "#227b9d",
    "theme.dark.primaryColor": "#227b9d",  # a lighter one has too little contrast with white text
    "logger.hideWelcomeMessage": True,
    "logger.level": "warning",
}


def main(catalog: Path, port: int) -> int:
    guard_terminal(coloured=True)  # Streamlit colours its output
    # Passed in the environment, because other users can read command lines.
    secret = os.environ.pop(SECRET_VARIABLE, "") or new_secret()  # noqa: TID251
    try:
        serve(catalog, port, secret)
    except SpecError as error:
        sys.stderr.write(f"lce: {error}\n")
        return 2
    return 0


def serve(catalog: Path, port: int, secret: str) -> None:
    """Serve the dashboard; each request must carry `secret`, and the catalog may be replaced."""
    require_streamlit()
    if catalog.exists():
        open_catalog(catalog).close()
    from starlette.middleware import Middleware
    from streamlit.starlette import App

    # Import before the first request: these imports are half of the first view's time.
    for module in ("altair", "pandas", "streamlit.elements.vega_charts", "dashboards.app.shell"):
        importlib.import_module(module)
    app = App(SCRIPT, middleware=[Middleware(Guard, secret=secret, port=port)])
    sys.stdout.write(f"{login_link(f'http://{ADDRESS}:{port}', secret)}  (Ctrl-C stops it)\n")
    sys.stdout.flush()
    # Streamlit reads the script's path and arguments from sys.argv.
    sys.argv = [str(SCRIPT), str(catalog)]
    # The server raises the signal again after its shutdown.
    with contextlib.suppress(KeyboardInterrupt):
        app.run(config={**OPTIONS, "server.port": port})


def require_streamlit(module: str = "streamlit") -> None:
    if importlib.util.find_spec(module) is None:
        raise SpecError(
            "lce dashboard",
            f"a Python environment without the package {module}",
            "the packages of lce's extra `dashboard`",
            "run `make install` in the checkout",
        )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
