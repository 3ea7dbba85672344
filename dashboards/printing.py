"""Print the HTML report as a PDF with a locally installed Chromium.

The PDF has the style sheets of the HTML page and in addition `page/print.css`. Its text is
searchable, its pictures are vector graphics, and its outline consists of the headings.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from pathlib import Path

from dashboards.report import report_page
from dashboards.writing import unwritable, write_whole
from lce_core.errors import ServiceError

SECONDS = 120.0
"""Time limit for the browser. Even on a busy machine the largest report takes far less."""
OPTIONS = (
    "--headless",
    "--no-pdf-header-footer",
    "--generate-pdf-document-outline",
    "--disable-gpu",
    "--disable-dev-shm-usage",  # /dev/shm is small in containers, and a large page crashes
    # Keep the browser offline; the page's own policy blocks requests already.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
)


def write_pdf(catalog: Path, study: str, out: Path, browser: Path) -> Path:
    """Write the report of one study as an A4 PDF and return `out`."""
    return print_page(report_page(catalog, study, on_paper=True), out, browser)


def print_page(page: str, out: Path, browser: Path, seconds: float = SECONDS) -> Path:
    """Print an HTML page to PDF after its scripts have run; on an error, keep an existing file."""
    try:
        # Not in /tmp: a browser installed as a snap has a private /tmp.
        out.parent.mkdir(parents=True, exist_ok=True)
        beside = tempfile.TemporaryDirectory(
            prefix=f"{out.name}.", dir=out.parent, ignore_cleanup_errors=True
        )
    except OSError as error:
        raise unwritable(out, error) from error
    with beside as name:
        folder = Path(name)
        source, printed, log = folder / "page.html", folder / "page.pdf", folder / "log"
        source.write_text(page, encoding="utf-8")
        command = [
            str(browser),
            *OPTIONS,
            *(["--no-sandbox"] if os.geteuid() == 0 else []),  # required for root
            f"--user-data-dir={folder / 'profile'}",
            f"--print-to-pdf={printed}",
            source.as_uri(),
        ]
        failed = _run(command, log, seconds)
        content = printed.read_bytes() if printed.is_file() else b""
        if failed or not (content.startswith(b"%PDF-") and b"%%EOF" in content[-1024:]):
            said = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
            raise ServiceError(
                str(browser),
                failed or "a browser that wrote no complete PDF",
                f"a Chromium or Chrome that prints the report within {seconds:g} s",
                "read the browser's output below, or set LCE_CHROMIUM to another browser",
                "\n".join(said.splitlines()[-10:]),
            )
        return write_whole(out, content)


def _run(command: list[str], log: Path, seconds: float) -> str:
    """Run a program in its own process group; return what went wrong, or "" on success."""
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return f"a program that does not start ({error.strerror})"
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"a browser that was still running after {seconds:g} s"
        finally:
            if process.poll() is None:  # timed out or interrupted: kill its child processes too
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return f"exit code {code}" if code else ""
