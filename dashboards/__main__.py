"""`python -m dashboards`: writes a study's report. `lce report` runs it as a process of its own.

Exit codes are those of `lce`: 2, with one message, if the request is wrong.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dashboards.report import write_report
from lce_core.errors import SpecError


def main() -> int:
    """Writes the report; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dashboards")
    parser.add_argument("--catalog", type=Path, required=True)
    parser.add_argument("--study", required=True)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    try:
        write_report(asked.catalog, asked.study, asked.out)
    except SpecError as error:
        sys.stderr.write(f"lce: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
