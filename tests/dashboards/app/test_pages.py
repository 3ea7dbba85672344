"""Each page shows the catalog's content and foreign text literally, and survives a lost catalog.

Streamlit's test runner runs the pages in this process on a real catalog.
"""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import duckdb
import pyarrow as pa
import pytest
from streamlit.testing.v1 import AppTest

from catalog.mlflow_pages import note_pages
from catalog.queries import open_catalog, run_query
from dashboards.app.views.questions import MOST_ROWS
from dashboards.claims.summary import summaries
from tests.support.catalogs import holed_catalog
from tests.support.catalogs.answered_catalog import Answered, written
from tests.support.catalogs.sample_store import STUDY

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _main(monkeypatch: pytest.MonkeyPatch) -> None:
    # Restore __main__ after Streamlit replaces it: processes spawned later could not find it.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


def page(catalog: str, view: str) -> None:
    # Streamlit runs the source of this function, so it must import everything it uses.
    import importlib
    from pathlib import Path

    from dashboards.app.catalog import Catalog
    from dashboards.app.shell import framed

    module = importlib.import_module(f"dashboards.app.views.{view}")
    framed(Catalog(Path(catalog)), view, module.page)


def opened(catalog: Path, view: str) -> AppTest:
    return AppTest.from_function(page, args=(str(catalog), view), default_timeout=600).run()


def shown(app: AppTest) -> AppTest:
    assert [error.message for error in app.exception] == []
    assert [error.value for error in app.error] == []
    return app


def asked(catalog: Path, sql: str) -> list[tuple[Any, ...]]:
    return run_query(catalog, sql)[1]


def drawn(app: AppTest) -> list[dict[str, Any]]:
    """Return the data of the marks of all charts."""
    found: list[dict[str, Any]] = []
    for chart in app.get("vega_lite_chart"):
        tables = [chart.proto.data.data, *(named.data.data for named in chart.proto.datasets)]
        for table in filter(None, tables):
            found += pa.ipc.open_stream(table).read_all().to_pylist()
    return found


def test_the_sidebar_links_to_mlflow_if_it_has_the_study(catalog, tmp_path):
    assert opened(catalog, "questions").sidebar.get("link_button") == []
    beside = tmp_path / "catalog.duckdb"
    shutil.copy(catalog, beside)
    note_pages(tmp_path, STUDY, "7", {})
    links = shown(opened(beside, "questions")).sidebar.get("link_button")
    assert [link.proto.url for link in links] == [
        f"http://127.0.0.1:5000/#/experiments/7/runs?viewStateShareKey={view}&compareRunsMode=CHART&workflowType=machine_learning"
        for view in ("methods", "seeds")
    ]


def test_the_matrix_counts_every_cell_and_gives_every_reason_literally(catalog):
    app = shown(opened(catalog, "matrix"))
    ((cells, done),) = asked(catalog, "SELECT count(*), count(*) FILTER (status='done') FROM cells")
    assert f"{done:,} of {cells:,} cells done" in app.get("progress")[0].proto.text
    fields = drawn(app)
    assert sum(field["planned"] for field in fields) == cells
    assert sum(field["done"] for field in fields) == done
    assert {field["state"] for field in fields} == {
        "done", "in part", "failed", "unavailable",
    }  # fmt: skip
    reasons = {row[0] for row in asked(catalog, "SELECT DISTINCT reason FROM missing_cells")}
    (missing,) = (table.value for table in app.dataframe)
    assert set(missing["why"]) == reasons
    lengths = [[int(one) for one in row.split(", ")] for row in missing["lengths"]]
    assert lengths == [sorted(row) for row in lengths]
    assert max(map(len, lengths)) > 1
    assert any("<script>" in reason for reason in missing["why"])
    rendered = [*app.markdown, *app.caption, *app.get("html")]
    assert not any("<script" in str(one.proto) for one in rendered)
    assert any("<beyond>" in text.value for text in app.text)  # the hypothesis, as it was written


def test_findings_have_every_mean_a_link_to_its_answers_and_the_best_methods(catalog):
    app = shown(opened(catalog, "findings"))
    assert app.get("progress") != []  # cells are missing
    means = next(table.value for table in app.dataframe if "answers" in table.value.columns)
    rows = asked(catalog, "SELECT value, ci_low, ci_high, num_seeds FROM mean_over_seeds")
    columns = ["score", "low", "high", "seeds"]
    found = means[columns].astype(object).where(means[columns].notna(), None).values.tolist()
    assert sorted(map(str, map(tuple, found))) == sorted(map(str, rows)) != []
    row = next(row for _, row in means.iterrows() if row["length"] == 512 and row["answers"])
    address = parse_qs(urlsplit(row["answers"]).query)
    answers = AppTest.from_function(page, args=(str(catalog), "answers"), default_timeout=600)
    for name, (value,) in address.items():
        answers.query_params[name] = value
    answers = shown(answers.run())
    assert answers.selectbox(key="method").value == row["method"]
    assert answers.selectbox(key="length").value == 512
    assert answers.selectbox(key="asked").value.startswith(row["benchmark"])
    with open_catalog(catalog) as connection:
        (summary,) = summaries(connection, STUDY)
    text = "\n".join(one.value for one in app.text)
    for sentence in (*summary.recommended(), *summary.distrust(), summary.total_cost()):
        assert sentence in text
    expected = next(table.value for table in app.dataframe if "expectation" in table.value.columns)
    outcomes = asked(catalog, "SELECT text, eval_length, outcome FROM expectations")
    shown_outcomes = expected[["expectation", "length", "outcome"]].values.tolist()
    assert sorted(map(tuple, shown_outcomes)) == sorted(outcomes) != []
    assert all(re.fullmatch(r"(?:[pq] [=<] [\d.]+)?", one) for one in expected["p or q"])


def test_the_first_chart_has_complete_points_of_perplexity_and_hollow_marks_of_frozen_methods(
    catalog,
):
    app = shown(opened(catalog, "explorer"))
    points = {(point["variant"], point["eval_length"]): point["y"] for point in drawn(app)}
    rows = asked(
        catalog,
        "SELECT method || CASE WHEN frozen THEN '' ELSE ' tuned' END, eval_length, value"
        " FROM benchmark_by_length WHERE benchmark = 'perplexity' AND value IS NOT NULL",
    )
    assert points == pytest.approx({(label, length): value for label, length, value in rows})

    marks = json.loads(app.get("vega_lite_chart")[0].proto.spec)["layer"][-1]["encoding"]
    labels, fills = (marks["fill"]["scale"][name] for name in ("domain", "range"))
    outlines = dict(zip(labels, marks["stroke"]["scale"]["range"], strict=True))
    hollow = {label for label, fill in zip(labels, fills, strict=True) if fill != outlines[label]}
    assert hollow == {label for label in labels if not label.endswith(" tuned")} != set()
    assert hollow != set(labels)


def test_answers_of_a_method_are_those_of_its_cells(catalog):
    app = shown(opened(catalog, "answers"))
    app = shown(app.selectbox(key="method").set_value("ntk_32k tuned").run())
    app = shown(app.selectbox(key="length").set_value(512).run())
    table = app.dataframe[0].value
    rows = asked(
        catalog,
        "SELECT seed, sample, prediction, reference FROM samples JOIN cells USING (cell)"
        " WHERE method = 'ntk_32k' AND benchmark = 'needle' AND samples.eval_length = 512"
        " ORDER BY ALL",
    )
    assert rows
    columns = ["seed", "sample", "answer", "reference"]
    assert sorted(map(tuple, table[columns].values.tolist())) == rows


def test_depths_that_differ_by_prompt_are_ranges(tmp_path):
    right = [float(number % 3 == 0) for number in range(60)]
    cells = [
        Answered("none", True, seed, "passkey", "single", 512, right, sum(right) / 60)
        for seed in (0, 1)
    ]
    path = written(tmp_path / "catalog.duckdb", cells)
    with duckdb.connect(path) as connection:
        connection.execute(
            "UPDATE store.sample SET prediction = 'a', reference = 'a', depth = 100 * sample / 59"
        )
    app = shown(opened(path, "answers"))
    depths = {field["depth"]: field for field in drawn(app) if "depth" in field}
    assert list(depths) == [f"{first} to {first + 10}" for first in range(0, 100, 10)]
    assert sum(field["samples"] for field in depths.values()) == 2 * 60
    # 100 * 54 / 59 is the first depth above 90 %.
    last = right[54:]
    assert depths["90 to 100"]["value"] == pytest.approx(sum(last) / len(last))
    app = shown(app.selectbox(key="depth").set_value("90 to 100").run())
    assert sorted(app.dataframe[0].value["sample"]) == sorted(2 * [*range(54, 60)])


def test_comparisons_are_those_of_the_catalog(catalog):
    app = shown(opened(catalog, "against"))
    app = shown(app.selectbox(key="method").set_value("yarn tuned").run())
    app = shown(app.selectbox(key="against").set_value("none").run())
    rows = asked(
        catalog,
        "SELECT benchmark, eval_length, difference, verdict FROM paired_difference WHERE"
        " method = 'yarn' AND other_method = 'none' AND NOT frozen AND other_frozen ORDER BY ALL",
    )
    table = app.dataframe[0].value
    columns = ["benchmark", "length", "difference", "verdict"]
    assert rows
    assert sorted(map(tuple, table[columns].values.tolist())) == rows


def test_the_query_box_shows_the_first_rows_and_refuses_statements_that_write(catalog):
    app = shown(opened(catalog, "questions"))
    app.text_area[0].set_value("SELECT range AS n, [1] AS n FROM range(1000000)")
    app = shown(app.button[0].click().run())
    assert len(app.dataframe[0].value) == MOST_ROWS
    assert list(app.dataframe[0].value.columns) == ["n", "n (2)"]
    assert any("there are more" in caption.value for caption in app.caption)
    before = catalog.read_bytes()
    for query in ("DROP VIEW studies", "SELECT * FROM read_csv('/etc/hostname')"):
        app.text_area[0].set_value(query)
        app = app.button[0].click().run()
        assert [error.value for error in app.error] == ["The query failed."]
        assert query.split()[0] in app.code[0].value
    assert catalog.read_bytes() == before


def test_a_page_follows_a_catalog_that_appears_is_replaced_and_disappears(catalog, tmp_path):
    place = tmp_path / "shown.duckdb"
    app = shown(opened(place, "matrix"))
    assert "no study yet" in app.info[0].value
    place.write_bytes(catalog.read_bytes())
    app = shown(app.run())
    assert app.header[0].value == f"matrix: {STUDY}, toy_llama"
    other = holed_catalog.written(
        tmp_path, [[holed_catalog.Cell("none", True, 0, "needle", "single", 128, "done", 1.0)]]
    )
    other.replace(place)
    app = shown(app.run())
    assert app.header[0].value == "matrix: study-0, toy_llama"
    assert "1 of 1 cells done" in app.get("progress")[0].proto.text
    place.unlink()
    app = shown(app.run())
    assert "lce rebuild catalog" in app.info[0].value


def test_an_older_catalog_says_how_to_rebuild_it(tmp_path):
    file = tmp_path / "catalog.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute(
            "CREATE VIEW studies AS SELECT 'toy' AS study, 'toy_llama' AS base_model"
        )
    app = opened(file, "explorer")
    assert [error.message for error in app.exception] == []
    assert "lce rebuild catalog" in app.error[0].value
