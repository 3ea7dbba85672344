"""Page: run a read-only SQL statement, sandboxed as in `lce sql`, with limits of time and size."""

import time

import streamlit as st

from catalog.apart import answer_apart
from catalog.formatting import format_rows
from dashboards.app.catalog import Chosen
from dashboards.app.tables import table
from lce_core.errors import LceError

MOST_ROWS = 1000
MOST_SECONDS = 10.0
MOST_BYTES = 32 << 20


def page(chosen: Chosen) -> None:
    first = (
        "SELECT method, frozen, benchmark, eval_length, value\nFROM benchmark_by_length\n"
        f"WHERE study = '{chosen.study}' AND is_best\nORDER BY benchmark, eval_length"
    )
    with st.form("question", border=False):
        query = st.text_area("SQL", first, height=140, key="query")
        st.form_submit_button("Ask")
    st.caption(
        f"One read-only statement; at most {MOST_SECONDS:g} s, {MOST_ROWS:,} rows and"
        f" {MOST_BYTES >> 20} MiB. `lce sql` has higher limits."
    )
    if query.strip():
        _answer(chosen, query)
    st.subheader("Views", anchor=False)
    views = [{**row, "columns": ", ".join(row["columns"])} for row in chosen.catalog.rows("views")]
    table(views, {"view": "view", "holds": "content", "columns": "columns"}, "views")


def _answer(chosen: Chosen, query: str) -> None:
    clock = time.perf_counter()
    try:
        columns, rows = answer_apart(
            chosen.catalog.path, query, MOST_SECONDS, most_rows=MOST_ROWS + 1, most_bytes=MOST_BYTES
        )
    except LceError as error:
        st.error("The query failed.")
        st.code(str(error), language=None, wrap_lines=True)
        return
    seconds, shown = time.perf_counter() - clock, rows[:MOST_ROWS]
    more = f"the first {MOST_ROWS:,} rows; there are more" if len(rows) > MOST_ROWS else None
    st.caption(f"{more or f'{len(rows):,} rows'}, {seconds:.2f} s")
    # Column names may repeat, so use column numbers as keys.
    heads = {str(number): _head(columns, number) for number in range(len(columns))}
    table([dict(zip(heads, map(_plain, row), strict=True)) for row in shown], heads, "answer")
    st.download_button(
        "CSV", lambda: format_rows(columns, shown, "csv"), "answer.csv", "text/csv", key="csv"
    )


def _head(columns: list[str], number: int) -> str:
    again = columns[:number].count(columns[number])
    return f"{columns[number]} ({again + 1})" if again else columns[number]


def _plain(cell: object) -> object:
    return cell if cell is None or isinstance(cell, bool | int | float | str) else str(cell)
