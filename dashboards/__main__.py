"""`python -m dashboards`: writes a study's report. `lce report` runs it as a process of its own.

Exit codes are those of `lce`: 2, with one message, if the request is wrong.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dashboards.markdown import write_markdown
from dashboards.report import write_report
from lce_core.errors import SpecError

WRITERS = {"html": write_report, "md": write_markdown}


def main() -> int:
    """Writes the report; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dashboards")
    parser.add_argument("--catalog", type=Path, required=True)
    parser.add_argument("--study", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--format", choices=sorted(WRITERS), default="html")
    asked = parser.parse_args()
    try:
        written = WRITERS[asked.format](asked.catalog, asked.study, asked.out)
    except SpecError as error:
        sys.stderr.write(f"lce: {error}\n")
        return 2
    sys.stdout.write(f"{written}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
