"""Render a study as one static HTML file, which needs no server, network or other file.

The first screen shows what the study expected and what came out, which method to use, and what to
distrust. The sections below are folded and give the details. All numbers come from the catalog. The
same catalog always gives the same bytes, except for the final section, which links to the study's
runs in MLflow.
"""

from __future__ import annotations

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
from dashboards.writing import write_whole

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


def write_report(catalog: Path, study: str, out: Path) -> Path:
    return write_whole(out, report_page(catalog, study))


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
    """Render the page as HTML text, without the section on MLflow if `pages` is None."""
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


def _groups(contents: Contents) -> dict[str, list[str]]:
    """Return the methods that a reader can highlight, by title of their family."""
    titles: dict[str, dict[str, None]] = {}
    for study in contents.studies:
        for group in groups(contents.of(study["base_model"])):
            titles.setdefault(group.title, {}).update((one.label, None) for one in group.variants)
    return {title: list(labels) for title, labels in titles.items()}


def _asset(name: str) -> Markup:
    return Markup((PAGE / name).read_text(encoding="utf-8"))
