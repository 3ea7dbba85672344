"""Render a study as one static HTML file, which needs no server, network or other file.

The first screen shows what the study expected and what came out, which method to use, and what to
distrust. The sections below are folded and give the details. All numbers come from the catalog. The
same catalog always gives the same bytes, except for the final section, which links to the study's
runs in MLflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path

from catalog.mlflow_pages import MlflowPages, pages_of
from catalog.queries import open_catalog
from dashboards.claims.summary import Summary, summaries
from dashboards.contents import Contents, read_contents
from dashboards.families import NO_EXTENSION, Variant, controls, families
from dashboards.sections import (
    about,
    against_length,
    answers,
    audit,
    cost,
    depths,
    downstream,
    glance,
    header,
    mlflow_links,
    named,
    origin,
    pairs,
    papers,
    positions,
    short_context,
    shots,
    tasks,
    training,
    tuning,
)
from dashboards.writing import write_whole

_PAGE = Path(__file__).parent / "page"
_SCRIPTS = ("address.js", "report.js", "curves.js", "tables.js")
_VENDORED = ("vega.min.js", "vega-lite.min.js", "vega-interpreter.js")
"""Scripts of `page/vendor`, in the order in which they must run."""
_OF_A_BASE_MODEL: tuple[tuple[str, str, Callable[[Contents], str]], ...] = (
    ("glance", "At a glance", glance.section),
    ("expectations", "The named methods against each other", named.section),
    ("pairs", pairs.TITLE, pairs.section),
    ("short-context", short_context.TITLE, short_context.section),
    ("length", "Score against length", against_length.section),
    ("needles", "Needles", depths.section),
    ("shots", "Many-shot", shots.section),
    ("positions", "Loss by position", positions.section),
    ("downstream", "Perplexity and downstream", downstream.section),
    ("tasks", "Task by task", tasks.section),
    ("answers", answers.TITLE, answers.section),
    ("tuning", "Tuning", tuning.section),
    ("training", "Training", training.section),
    ("papers", "Papers", papers.section),
    ("cost", "Cost", cost.section),
)
_ON_PAPER: dict[str, Callable[[Contents], str]] = {
    "pairs": lambda _: "",  # paper has no lists to pick from
    "tasks": tasks.on_paper,
}
_OF_THE_STUDY: tuple[tuple[str, str, Callable[[Contents], str]], ...] = (
    ("about", about.TITLE, about.section),
    ("audit", "Controls", audit.section),
    ("missing", "Without a result", origin.missing),
    ("origin", "Origin", origin.origin),
)


def write_report(catalog: Path, study: str, out: Path) -> Path:
    """Write the report of one study and return `out`.

    Args:
      catalog: Path of the catalog, in the folder of its store.
      study: Name of a study in the catalog.
      out: The HTML file to write. Its folder is created if missing; an existing file is replaced.

    Raises:
      SpecError: if the catalog or the study does not exist, or the file cannot be written.
    """
    return write_whole(out, report_page(catalog, study))


def report_page(catalog: Path, study: str, *, on_paper: bool = False) -> str:
    """Return the report of one study as HTML text.

    Args:
      catalog: Path of the catalog, in the folder of its store.
      study: Name of a study in the catalog.
      on_paper: True to render for printing: tables are expanded and fit the width of a sheet, and
        there are no links to MLflow.

    Raises:
      SpecError: if the catalog or the study does not exist.
    """
    contents = read_contents(catalog, study)
    with open_catalog(catalog) as connection:
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
    """Render the page as HTML text.

    Args:
      contents: catalog rows of the study.
      found: summaries of the study, one per base model.
      pages: addresses of the study's runs in MLflow; None to omit the section.
      on_paper: True to render for printing; see `report_page`.
    """
    parts = [*_parts(contents, on_paper=on_paper)]
    if body := mlflow_links.section(contents, pages):
        parts.append(("mlflow", "In MLflow", body))
    links = "".join(f'<a href="#{key}">{escape(title)}</a>' for key, title, _ in parts)
    sections = "".join(
        f'<section id="{key}"><details class="part"{" open" * on_paper}>'
        f"<summary><h2>{escape(title)}</h2></summary>{body}</details></section>"
        for key, title, body in parts
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        # This policy makes the browser refuse every network request of the page.
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\';'
        " style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(contents.study)}</title>\n<style>\n{_asset('report.css')}</style>\n"
        # A separate element, because report.js copies it into saved pictures.
        f'<style id="of-figures">\n{_asset("figures.css")}</style>\n'
        f'<style media="print">\n{_asset("print.css")}</style>\n</head>\n<body>\n<main>\n'
        f"{header.section(contents, found)}\n"
        '<div class="bar"><details class="menu"><summary>Sections</summary>'
        f'<nav aria-label="sections">{links}</nav></details>{_picker(contents)}</div>\n'
        f'{sections}\n</main>\n<div id="tooltip" role="status" hidden></div>\n'
        f"{_vendored() if 'line-panel' in sections and not on_paper else ''}"
        f"<script>\n{''.join(map(_asset, _SCRIPTS))}</script>\n</body>\n</html>\n"
    )


def _parts(contents: Contents, *, on_paper: bool) -> Iterator[tuple[str, str, str]]:
    """Yield (HTML id, title, HTML text) of each section that is not empty."""
    several = len(contents.studies) > 1
    for study in contents.studies:
        base = study["base_model"]
        of_it = contents.of(base)
        printed = _ON_PAPER if on_paper else {}
        sections = [
            (key, title, printed.get(key, section)(of_it))
            for key, title, section in _OF_A_BASE_MODEL
        ]
        for key, title, body in sections:
            if body:
                yield (f"{key}-{base}", f"{title}, {base}", body) if several else (key, title, body)
    for key, title, section in _OF_THE_STUDY:
        if body := section(contents):
            yield key, title, body


def _picker(contents: Contents) -> str:
    groups: dict[str, list[Variant]] = {}
    for study in contents.studies:
        of_it = contents.of(study["base_model"])
        groups.setdefault(NO_EXTENSION, []).extend(controls(of_it))
        for family in families(of_it):
            groups.setdefault(family.title, []).extend(family.variants)
    options = "".join(
        f'<optgroup label="{escape(title)}">{"".join(map(_option, dict.fromkeys(members)))}'
        "</optgroup>"
        for title, members in groups.items()
        if members
    )
    return (
        '<label class="picker" hidden>highlight <select id="picker">'
        f'<option value="">all methods</option>{options}</select></label>'
        '<span id="chosen" role="group" aria-label="highlighted methods"></span>'
    )


def _option(one: Variant) -> str:
    return f'<option value="{escape(one.label)}">{escape(one.label)}</option>'


def _vendored() -> str:
    """Return the scripts that draw interactive charts. `curves.js` runs them on demand."""
    return "".join(
        f'<script type="text/plain" data-vendored>\n{_asset(f"vendor/{name}")}</script>\n'
        for name in _VENDORED
    )


def _asset(name: str) -> str:
    return (_PAGE / name).read_text(encoding="utf-8")
