"""Provocations of the catalog and the dashboards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb

from catalog.extraction import _read_parquet
from catalog.formatting import format_rows
from catalog.holdings import take_stock
from catalog.limits import Limits, bytes_of
from catalog.queries import as_store_error, open_catalog, run_query
from dashboards.app.serving import require_streamlit
from dashboards.claims import claims
from dashboards.claims.__main__ import _of
from dashboards.contents import read_contents
from dashboards.markdown import write_markdown
from dashboards.printing import print_page
from dashboards.report import write_report
from lce_core.store.artifacts import Store
from lce_core.store.cell_tables import SAMPLES
from tests.support.errors.provocations import Place, Table
from tests.support.free_steps import free_step

PROVOCATIONS = Table()
provokes = PROVOCATIONS


def database(place: Place) -> Path:
    file = place.folder / "catalog.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute("CREATE VIEW studies AS SELECT 'toy' AS study")
    return file


@provokes("catalog/extraction.py", "a parquet table")
def _(place: Place) -> None:
    (place.folder / "a.parquet").write_bytes(b"none")
    _read_parquet(place.folder / "a.parquet", SAMPLES)


@provokes("catalog/formatting.py", "an output format")
def _(_: Place) -> None:
    format_rows(["a"], [(1,)], "xml")


@provokes("catalog/holdings.py", "among its files")
def _(place: Place) -> None:
    store, step = Store(place.folder), free_step("rows", "toy", {}, {})
    store.prepare()
    store.ensure(step, lambda attempt: {"n": (attempt.out / "a").write_bytes(b"a")}, {})
    take_stock(store).file(step.short, "samples.parquet")


@provokes("catalog/limits.py", "a size of at least")
def _(_: Place) -> None:
    bytes_of("much", "--memory")


@provokes("catalog/limits.py", "a query that takes at most {seconds} s")
def _(place: Place) -> None:
    run_query(database(place), "SELECT sum(a.range) FROM range(100000) a, range(100000) b", 0.1)


@provokes("catalog/limits.py", "of temporary files")
def _(place: Place) -> None:
    sql = "SELECT list(range) FROM range(100000000)"
    run_query(database(place), sql, within=Limits(1 << 27, 0, 1))


@provokes("catalog/limits.py", "an answer of at most")
def _(place: Place) -> None:
    run_query(database(place), "FROM range(9999)", within=Limits(1 << 27, 0, 1 << 16))


@provokes("catalog/queries.py", "no such file")
def _(place: Place) -> None:
    open_catalog(place.folder / "none")


@provokes("catalog/queries.py", "got {error}; expected the catalog")
def _(place: Place) -> None:
    (place.folder / "none").write_bytes(b"no database" * 1000)
    open_catalog(place.folder / "none")


@provokes("catalog/queries.py", "a query over the views")
def _(place: Place) -> None:
    run_query(database(place), "SELECT * FROM studdies")


@provokes("catalog/queries.py", "the catalog as it was built")
def _(place: Place) -> None:
    raise as_store_error(duckdb.IOException("IO Error: corrupt block"), place.folder)


@provokes("catalog/queries.py", "statements in")
def _(place: Place) -> None:
    run_query(database(place), "SELECT 1; SELECT 2")


@provokes("catalog/queries.py", "{sql} ({kind})")
def _(place: Place) -> None:
    run_query(database(place), "DROP VIEW studies")


@provokes("catalog/queries.py", "out of reach of a query")
def _(place: Place) -> None:
    run_query(database(place), "SELECT * FROM read_csv('/etc/hostname')")


@provokes("dashboards/app/serving.py", "the packages of the extra")
def _(_: Place) -> None:
    require_streamlit("streamlit_that_is_not_installed")


@provokes("dashboards/contents.py", "a study of")
def _(place: Place) -> None:
    read_contents(database(place), "toyy")


@provokes("dashboards/contents.py", "a catalog with all that a report shows")
def _(place: Place) -> None:
    read_contents(database(place), "toy")


@provokes("dashboards/claims/views.py", "a study of the catalog")
def _(place: Place) -> None:
    with open_catalog(database(place)) as connection:
        claims(connection, "toyy")


@provokes("dashboards/claims/views.py", "a catalog with comparisons")
def _(place: Place) -> None:
    with open_catalog(database(place)) as connection:
        claims(connection, "toy")


@provokes("dashboards/claims/__main__.py", "a method with claims")
def _(_: Place) -> None:
    _of([], "yarn")


@provokes("dashboards/printing.py", "a Chromium or Chrome that prints")
def _(place: Place) -> None:
    print_page("<p>", place.folder / "a.pdf", Path("/bin/true"))


def reported(place: Place, write: Callable[[Path, str, Path], Path]) -> None:
    """Writes a report below a file."""
    from catalog.build import build_catalog
    from tests.support.catalogs.sample_store import STUDY, sample_store

    folder = place.folder / "out"
    folder.write_text("a file", encoding="utf-8")
    store = sample_store(place.folder)
    built = build_catalog(store, place.folder / "catalog.duckdb")
    write(built, STUDY, folder / "report")


@provokes("dashboards/writing.py", "a writable file", slow=True)
def _(place: Place) -> None:
    reported(place, write_report)


@provokes("dashboards/markdown.py", "a folder that is there or can be made", slow=True)
def _(place: Place) -> None:
    reported(place, write_markdown)
