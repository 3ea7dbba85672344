"""Write a study's report: `python -m dashboards`. `lce report` starts it in a separate process.

On an error the program prints one message and exits as `lce` does: with code 2 if the request is
wrong, with code 3 if the catalog is damaged or the browser that prints a PDF fails.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from catalog.queries import as_store_error
from dashboards.latex import write_latex
from dashboards.markdown import write_markdown
from dashboards.printing import write_pdf
from dashboards.report import write_report
from lce_core.errors import SpecError
from lce_core.store.failures import explained
from lce_core.terminal import guard_terminal

WRITERS = {"html": write_report, "md": write_markdown, "latex": write_latex}


def main() -> int:
    """Write the report that the command line asks for; return the exit code 0, 2 or 3."""
    guard_terminal()
    parser = argparse.ArgumentParser(prog="python -m dashboards")
    parser.add_argument("--catalog", type=Path, required=True)
    parser.add_argument("--study", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--format", choices=sorted([*WRITERS, "pdf"]), default="html")
    parser.add_argument("--browser", type=Path, help="path of Chromium, for pdf")
    arguments = parser.parse_args()
    if arguments.format == "pdf" and arguments.browser is None:
        parser.error("--format pdf needs --browser PATH")
    pdf = partial(write_pdf, browser=arguments.browser)
    write: Callable[[Path, str, Path], Path] = (
        pdf if arguments.format == "pdf" else WRITERS[arguments.format]
    )
    try:
        written = write(arguments.catalog, arguments.study, arguments.out)
    except Exception as error:  # noqa: BLE001 - no state of the catalog may end in a traceback
        error_text = explained(as_store_error(error, arguments.catalog), arguments.catalog.parent)
        sys.stderr.write(f"lce: {error_text}\n")
        return 2 if isinstance(error_text, SpecError) else 3
    sys.stdout.write(f"{written}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
