"""Frame of all pages: navigation, the selected study, and the age of the catalog."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import streamlit as st

from catalog.mlflow_pages import pages_of
from dashboards.app.catalog import Catalog, Chosen, choose
from dashboards.app.tables import PAGE
from dashboards.app.views import against, answers, explorer, findings, matrix, printed, questions
from lce_core import formats
from lce_core.errors import SpecError

REFRESH_SECONDS = 5.0
_PAGES: tuple[tuple[str, str, Callable[[Chosen], None]], ...] = (
    ("Findings", "findings", findings.page),
    ("Matrix", "matrix", matrix.page),
    ("Scores", "scores", explorer.page),
    ("Answers", "answers", answers.page),
    ("Method against method", "against", against.page),
    ("Papers", "papers", printed.page),
    ("SQL", "sql", questions.page),
)


def show(path: Path) -> None:
    catalog = Catalog(path)
    st.set_page_config(page_title="lce", layout="wide")
    pages = [
        st.Page(
            partial(framed, catalog, title, view), title=title, url_path=url, default=not number
        )
        for number, (title, url, view) in enumerate(_PAGES)
    ]
    st.navigation(pages).run()


def framed(catalog: Catalog, title: str, view: Callable[[Chosen], None]) -> None:
    """Show a page (`view`) with sidebar and heading; if it raises a SpecError, show the error."""
    st.html(PAGE)
    try:
        with st.sidebar:
            chosen = choose(catalog) if catalog.path.is_file() else None
            _age(catalog)
            if chosen and (pages := pages_of(catalog.path.parent, chosen.study)):
                st.link_button(
                    "Methods in MLflow", pages.methods, help="Works while `lce up` runs."
                )
                st.link_button("Seeds in MLflow", pages.seeds, help="Works while `lce up` runs.")
        if chosen is None:
            _waiting(catalog)
            return
        st.header(f"{title}: {chosen.study}, {chosen.base_model}", anchor=False)
        view(chosen)
    except SpecError as error:
        st.error("Cannot read the catalog. If an older lce made it, run `lce rebuild catalog`.")
        st.code(str(error), language=None, wrap_lines=True)


@st.fragment(run_every=REFRESH_SECONDS)
def _age(catalog: Catalog) -> None:
    if not catalog.path.is_file():
        return
    written = datetime.fromtimestamp(catalog.path.stat().st_mtime, UTC)
    seconds = max(0.0, (datetime.now(UTC) - written).total_seconds())
    st.caption(f"Catalog of {written:%Y-%m-%d %H:%M:%S} UTC, {formats.duration(seconds)} old")


@st.fragment(run_every=REFRESH_SECONDS)
def _waiting(catalog: Catalog) -> None:
    if catalog.path.is_file() and catalog.rows("all_studies"):
        st.rerun()
    st.info(
        "The catalog has no study yet. Run one with `lce run STUDY`; this page then shows its"
        " progress. If results exist already, `lce rebuild catalog` builds the catalog:"
    )
    st.code(str(catalog.path), language=None)
