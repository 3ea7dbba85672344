"""Render a study as one static HTML file, which needs no server, network or other file, or as PDF.

The same catalog always gives the same bytes, except for the final section, which links to the
study's runs in MLflow.
"""

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from markupsafe import Markup

from catalog.mlflow_pages import MlflowPages, pages_of
from dashboards.claims.summary import Summary, summaries
from dashboards.contents import Contents, opened, read_contents
from dashboards.families import groups
from dashboards.figure import PAGE, rendered
from dashboards.sections import about, comparisons, curves, header, heat_maps, tasks, training
from dashboards.sections.downstream import downstream
from lce_core.errors import ServiceError, SpecError

_SCRIPTS = ("address.js", "report.js", "curves.js", "tables.js")
_VENDORED = ("vendor/vega.min.js", "vendor/vega-lite.min.js", "vendor/vega-interpreter.js")
"""Scripts that draw interactive charts, in the order in which they must run. `curves.js` runs them
on demand."""
_OF_A_BASE_MODEL: tuple[tuple[str, str, Callable[[Contents], Markup]], ...] = (
    ("glance", "At a glance", heat_maps.glance),
    ("expectations", "The named methods against each other", comparisons.named_methods),
    ("pairs", comparisons.PAIRS, comparisons.two_methods),
    ("short-context", comparisons.SHORT_CONTEXT, comparisons.short_context),
    ("length", "Score against length", curves.against_length),
    ("needles", "Needles", heat_maps.needles),
    ("shots", "Many-shot", curves.by_shots),
    ("positions", "Loss by position", curves.by_position),
    ("downstream", "Perplexity and downstream", downstream),
    ("tasks", "Task by task", tasks.by_task),
    ("controls", "Controls", tasks.controls),
    ("answers", tasks.ANSWERS, tasks.sample_answers),
    ("tuning", "Tuning", training.tuning),
    ("training", "Training", training.training),
    ("papers", "Papers", comparisons.papers),
    ("cost", "Cost", training.cost),
)
_ON_PAPER: dict[str, Callable[[Contents], Markup]] = {
    "pairs": lambda _: Markup(),  # paper has no lists to pick from
    "tasks": partial(tasks.by_task, on_paper=True),
}
_OF_THE_STUDY: tuple[tuple[str, str, Callable[[Contents], Markup]], ...] = (
    ("about", "Definitions", about.definitions),
    ("audit", "Confounders", about.confounders),
    ("missing", "Without a result", about.missing),
    ("origin", "Origin", about.origin),
)


PRINT_SECONDS = 120.0
"""Time limit for the browser. Even on a busy machine the largest report takes far less."""
_BROWSER_OPTIONS = (
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


def write_report(catalog: Path, study: str, out: Path) -> Path:
    return write_whole(out, report_page(catalog, study))


def write_whole(out: Path, content: str | bytes) -> Path:
    """Write a file through a temporary one: after an error or crash, the old file is unchanged."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        aside = out.with_name(f".{out.name}.aside")
        aside.write_bytes(content.encode() if isinstance(content, str) else content)
        aside.replace(out)
    except OSError as error:
        raise unwritable(out, error) from error
    return out


def unwritable(out: Path, error: OSError, what: str = "file") -> SpecError:
    got = f"{out}, which cannot be written ({error.strerror})"
    return SpecError("--out", got, f"a writable {what}", "choose another path")


def report_page(catalog: Path, study: str, *, on_paper: bool = False) -> str:
    """Return the report as HTML; `on_paper` expands the tables and omits links to MLflow."""
    contents = read_contents(catalog, study)
    with opened(catalog) as connection:
        found = summaries(connection, study)
    pages = None if on_paper else pages_of(catalog.parent, study)
    return render(contents, found, pages, on_paper=on_paper)


def render(
    contents: Contents,
    found: Sequence[Summary] = (),
    pages: MlflowPages | None = None,
    *,
    on_paper: bool = False,
) -> str:
    parts = [*_parts(contents, on_paper=on_paper)]
    if body := about.mlflow(contents, pages):
        parts.append(("mlflow", "In MLflow", body))
    draws_lines = any("line-panel" in body for _, _, body in parts)
    return rendered(
        "report.html",
        title=contents.study,
        css={name: _asset(f"{name}.css") for name in ("report", "figures", "print")},
        header=header.section(contents, found),
        parts=parts,
        is_open=on_paper,
        groups=_groups(contents),
        vendored=list(map(_asset, _VENDORED)) if draws_lines and not on_paper else [],
        scripts=list(map(_asset, _SCRIPTS)),
    )


def _parts(contents: Contents, *, on_paper: bool) -> Iterator[tuple[str, str, Markup]]:
    several = len(contents.studies) > 1
    printed = _ON_PAPER if on_paper else {}
    for study in contents.studies:
        base = study["base_model"]
        of_it = contents.of(base)
        for key, title, section in _OF_A_BASE_MODEL:
            if body := printed.get(key, section)(of_it):
                yield (f"{key}-{base}", f"{title}, {base}", body) if several else (key, title, body)
    for key, title, section in _OF_THE_STUDY:
        if body := section(contents):
            yield key, title, body


def _groups(contents: Contents) -> dict[str, list[str]]:
    titles: dict[str, list[str]] = {}
    for study in contents.studies:
        for group in groups(contents.of(study["base_model"])):
            labels = titles.setdefault(group.title, [])
            labels += [one.label for one in group.variants if one.label not in labels]
    return titles


def _asset(name: str) -> Markup:
    return Markup((PAGE / name).read_text(encoding="utf-8"))


def write_pdf(catalog: Path, study: str, out: Path, browser: Path) -> Path:
    return print_page(report_page(catalog, study, on_paper=True), out, browser)


def print_page(page: str, out: Path, browser: Path, seconds: float = PRINT_SECONDS) -> Path:
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
            *_BROWSER_OPTIONS,
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
