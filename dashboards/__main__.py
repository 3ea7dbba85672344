"""Write a study's report as HTML: `python -m dashboards`, which runs of a deployment start.

On an error the program prints one message and exits as `lce` does: with code 2 if the request is
wrong, with code 3 if the catalog is damaged.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dashboards.report import write_report
from lce_core.errors import SpecError
from lce_core.store.failures import explained
from lce_core.terminal import guard_terminal


def main() -> int:
    guard_terminal()
    parser = argparse.ArgumentParser(prog="python -m dashboards")
    parser.add_argument("--catalog", type=Path, required=True)
    parser.add_argument("--study", required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    try:
        written = write_report(arguments.catalog, arguments.study, arguments.out)
    except Exception as error:  # noqa: BLE001 - no state of the catalog may end in a traceback
        shown = explained(error, arguments.catalog.parent)
        sys.stderr.write(f"lce: {shown}\n")
        return 2 if isinstance(shown, SpecError) else 3
    sys.stdout.write(f"{written}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
