"""Serve the dashboard until Ctrl-C or SIGTERM: `python -m dashboards.app`.

`lce dashboard` replaces its own process by this one. If the request is wrong, the program prints
one message and exits with code 2.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from dashboards.app.serving import serve
from lce_core.access import SECRET_VARIABLE, new_secret
from lce_core.errors import SpecError
from lce_core.terminal import guard_terminal


def main() -> int:
    """Serve the dashboard until Ctrl-C or SIGTERM; return 0, or 2 if the request is wrong."""
    guard_terminal(coloured=True)  # Streamlit colours its output
    parser = argparse.ArgumentParser(prog="python -m dashboards.app")
    parser.add_argument("--catalog", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    # Passed in the environment, because other users can read command lines.
    secret = os.environ.pop(SECRET_VARIABLE, "") or new_secret()  # noqa: TID251
    try:
        serve(arguments.catalog, arguments.port, secret)
    except SpecError as error:
        sys.stderr.write(f"lce: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
