from pathlib import Path

import duckdb

from catalog.holdings import take_stock
from catalog.limits import Limits
from catalog.queries import as_store_error, read_blocks
from dashboards.app.__main__ import require_streamlit
from dashboards.claims.printing import _chosen
from lce_core.errors import SpecError, StoreError
from lce_core.store.artifacts import Store
from tests.support.errors.provocations import Place, provokes
from tests.support.free_steps import free_step


def database(place: Place) -> Path:
    file = place.folder / "catalog.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute("CREATE VIEW studies AS SELECT 'toy' AS study")
    return file


@provokes(StoreError, "samples.parquet")
def _(place: Place) -> None:
    store, step = Store(place.folder), free_step("rows", "toy", {}, {})
    store.prepare()
    store.ensure(step, lambda attempt: {"n": (attempt.out / "a").write_bytes(b"a")}, {})
    take_stock(store).file(step.id, "samples.parquet")


@provokes(SpecError, "range(100000000)")
def _(place: Place) -> None:
    sql = "SELECT list(range) FROM range(100000000)"
    list(read_blocks(database(place), sql, 60, within=Limits(1 << 27, 0, 1)))


@provokes(StoreError, "corrupt block")
def _(place: Place) -> None:
    raise as_store_error(duckdb.IOException("IO Error: corrupt block"), place.folder)


provokes(SpecError, "streamlit_that_is_not_installed")(
    lambda _: require_streamlit("streamlit_that_is_not_installed")
)


provokes(SpecError, "--method: got 'yarn")(lambda _: _chosen([], {"method": "yarn"}))
