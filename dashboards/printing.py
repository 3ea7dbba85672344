"""The report as a PDF for papers and mail: its page, printed by a Chromium of this machine.

So the PDF has what the page has, drawn by the same style sheets; `page/print.css` says what is
different on paper. Its text can be searched, its pictures are vectors, its headings an outline.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from dashboards.report import report_page
from dashboards.writing import folder_beside, write_whole
from lce_core.errors import ServiceError

SECONDS = 120.0
"""Time that a browser may take: many times what the largest report takes on a busy machine."""
OPTIONS = (
    "--headless",
    "--no-pdf-header-footer",
    "--generate-pdf-document-outline",
    "--disable-gpu",
    "--disable-dev-shm-usage",  # containers have little of it, and a page that outgrows it crashes
    # It asks nobody for anything; the page itself allows no request.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
)


def write_pdf(catalog: Path, study: str, out: Path, browser: Path) -> Path:
    """Writes the report of one study as a PDF on A4; returns `out`.

    Args:
      catalog: The catalog, as `catalog.build` makes it, in the folder of its store.
      study: Name of a study in it.
      out: The PDF; its folder is made if need be, an earlier one is replaced.
      browser: A Chromium or Chrome.

    Raises:
      SpecError: there is no catalog, it does not hold the study, or the file cannot be written.
      ServiceError: the browser does not print.
    """
    return print_page(report_page(catalog, study, on_paper=True), out, browser)


def print_page(page: str, out: Path, browser: Path, seconds: float = SECONDS) -> Path:
    """Prints a page as it is once it has loaded and its scripts have run; returns `out`.

    Args:
      page: HTML that needs nothing else.
      out: The PDF; whatever goes wrong, an earlier one stays as it is.
      browser: A Chromium or Chrome.
      seconds: Time that it may take.

    Raises:
      SpecError: the file cannot be written.
      ServiceError: the browser does not start, ends without a PDF, or takes too long.
    """
    # Beside the file and not in /tmp, of which a browser installed as a snap sees its own.
    with folder_beside(out) as folder:
        source, printed, log = folder / "page.html", folder / "page.pdf", folder / "log"
        source.write_text(page, encoding="utf-8")
        command = [
            str(browser),
            *OPTIONS,
            *(["--no-sandbox"] if os.geteuid() == 0 else []),  # root cannot have it
            f"--user-data-dir={folder / 'profile'}",
            f"--print-to-pdf={printed}",
            source.as_uri(),
        ]
        failed = _run(command, log, seconds)
        content = printed.read_bytes() if printed.is_file() else b""
        if failed or not (content.startswith(b"%PDF-") and b"%%EOF" in content[-1024:]):
            raise ServiceError(
                str(browser),
                failed or "no PDF",
                f"a Chromium or Chrome that prints the report within {seconds:g} s",
                "see what it says below, or name another in LCE_CHROMIUM",
                _tail(log),
            )
        return write_whole(out, content)


def _run(command: list[str], log: Path, seconds: float) -> str:
    """Runs a program with all that it starts; returns what went wrong, or nothing."""
    with log.open("wb") as said:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return f"a program that does not start ({error.strerror})"
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"no end after {seconds:g} s"
        finally:
            if process.poll() is None:  # out of time, or interrupted
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return f"exit code {code}" if code else ""


def _tail(log: Path, lines: int = 10) -> str:
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    return "\n".join(text.splitlines()[-lines:])
