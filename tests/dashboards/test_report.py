"""The report shows the catalog's content, needs no other file, and works in a browser.

Strategy: every mark in a headless Chromium is compared with a row of independent SQL.
"""

from __future__ import annotations

import csv
import re
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from catalog.build import build_catalog
from catalog.mlflow_pages import note_pages, pages_of, run_key
from catalog.queries import open_catalog, run_query
from dashboards.claims.summary import summaries
from dashboards.contents import read_contents
from dashboards.report import report_page, write_report
from lce_core.errors import SpecError
from lce_core.store.artifacts import Store
from tests.catalog.test_comparisons import losses
from tests.support.catalogs.answered_catalog import written
from tests.support.catalogs.sample_store import STUDY

pytestmark = pytest.mark.slow

GAINS = """
SELECT n.benchmark, n.task, n.eval_length, n.method, n.frozen,
    (n.position_bin >= 128)::INTEGER + (n.position_bin >= 256)::INTEGER
        + (n.position_bin >= 512)::INTEGER AS band,
    avg(n.nll - b.nll) AS gain
FROM nll_by_position n
JOIN nll_by_position b USING (study, base_model, benchmark, task, eval_length, position_bin)
WHERE b.method = 'none' AND b.frozen AND (n.method != 'none' OR NOT n.frozen)
    AND n.nll IS NOT NULL AND b.nll IS NOT NULL
GROUP BY ALL"""
"""Of a study whose base model was trained on 128 tokens; `band` counts the doublings from there."""
BANDS = ("to 128", "128 to 256", "256 to 512", "512 to 1,024")

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


def test_the_same_catalog_gives_the_same_bytes(catalog, report, tmp_path):
    again = write_report(catalog, STUDY, tmp_path / "reports" / "again.html")
    assert again.read_bytes() == report.read_bytes()
    assert list(again.parent.iterdir()) == [again]


def test_the_report_links_the_runs_in_mlflow(catalog, tmp_path):
    copied = Path(shutil.copy(catalog, tmp_path))
    contents = read_contents(copied, STUDY)
    keys = {
        run_key(STUDY, row["base_model"], row["method"], row["frozen"]): row
        for row in contents.overview
    }
    ids = {key: f"{number:032x}" for number, key in enumerate(keys)}
    note_pages(tmp_path, STUDY, "7", ids)
    page = report_page(copied, STUDY)
    pages = pages_of(tmp_path, STUDY)
    assert pages is not None
    links = [unescape(link) for link in re.findall(r'href="(http[^"]+)"', page)]
    assert links[:2] == [pages.methods, pages.seeds]
    assert [link.rpartition("/")[2] for link in links[2:]] == list(ids.values())
    assert '<a href="#mlflow">' in page


def test_the_page_references_no_other_file_or_host(report: Path) -> None:
    # Links to papers load nothing until a reader follows them.
    text = re.sub('<a href="https://[^"]*">', "<a>", report.read_text(encoding="utf-8"))
    # Vega names XML namespaces and its documentation; a browser test watches all requests.
    text = re.sub(r'<script type="text/plain".*?</script>', "", text, flags=re.DOTALL)
    assert re.findall(r"""\b(?:src|href)=["']?(?!data:|#)[^"'\s>]+""", text) == []
    assert re.findall(r"https?:|//[a-z]|@import|url\(", text) == []


def test_every_reason_for_a_missing_result_is_shown(catalog, report):
    text = report.read_text(encoding="utf-8")
    _, rows = run_query(catalog, "SELECT DISTINCT status, reason FROM missing_cells")
    for status, reason in rows:
        assert f'class="status {status}"' in text
        assert reason.replace("<", "&lt;").replace(">", "&gt;") in text


def test_an_unknown_study_and_an_unwritable_folder_are_errors(catalog, tmp_path):
    with pytest.raises(SpecError, match="write 'sample'"):
        write_report(catalog, "sampel", tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(SpecError, match="a writable file"):
        write_report(catalog, STUDY, tmp_path / "file" / "report.html")


def test_a_study_that_has_not_run_yet_has_a_report_without_figures(store, tmp_path):
    planned = Store(tmp_path / "home")
    planned.prepare()
    shutil.copytree(store.home / "studies", planned.home / "studies", dirs_exist_ok=True)
    path = write_report(build_catalog(planned), STUDY, tmp_path / "report.html")
    text = path.read_text(encoding="utf-8")
    assert "<figure" not in text
    assert "waits for base" in text


class Opened:
    """The report in a browser, with all its requests and errors."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self._heard(message.type, message.text))

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.errors.append(text)

    def data(self, selector: str) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self.page.eval_on_selector_all(
            selector, "marks => marks.map(mark => ({...mark.dataset}))"
        )
        return found

    def plotted(self, figure: str, *facts: str) -> set[tuple[Any, ...]]:
        """Method, frozen and these facts of every mark with a value in a figure."""
        marks = self.data(f'[data-figure="{figure}"] svg [data-{facts[-1]}]')
        return {_row(mark, facts) for mark in marks}

    def series(self, script: str) -> list[str]:
        found: list[str] = self.page.eval_on_selector_all(".series", f"all => all.{script}")
        return found


def _row(mark: dict[str, str], facts: tuple[str, ...]) -> tuple[Any, ...]:
    named = {name: mark[re.sub(r"-(\w)", lambda m: m[1].upper(), name)] for name in facts}
    numbers = (text if name == "block" else float(text) for name, text in named.items())
    return (mark["method"], mark["frozen"] == "true", *numbers)


def open_report(chrome: Browser, report: Path) -> Opened:
    opened = Opened(chrome.new_page(viewport={"width": 1280, "height": 900}))
    opened.page.goto(report.as_uri())
    # Sections are folded; a folded part has no size.
    opened.page.eval_on_selector_all("details.part", "all => all.map(one => (one.open = true))")
    return opened


@pytest.fixture(scope="module")
def opened(chrome, report) -> Opened:
    """The report in a page that tests only read."""
    return open_report(chrome, report)


@pytest.fixture
def used(chrome, report) -> Iterator[Opened]:
    """The report in a page of its own, for a test that changes it."""
    opened = open_report(chrome, report)
    yield opened
    opened.page.close()
    assert opened.errors == []


def rows_of(catalog: Path, sql: str) -> set[tuple[Any, ...]]:
    return set(run_query(catalog, sql)[1])


def close(found: set[tuple[Any, ...]], expected: set[tuple[Any, ...]]) -> bool:
    """Return True if both have the same rows, except for the rounding of float sums."""

    def rounded(rows: set[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
        return {tuple(round(x, 10) if isinstance(x, float) else x for x in row) for row in rows}

    return rounded(found) == rounded(expected) != set()


def test_the_first_screen_has_the_hypothesis_its_outcome_and_the_best_methods(catalog, opened):
    top = opened.page.inner_text("header")
    assert "Methods with exact attention keep retrieval & perplexity <beyond> 4x." in top
    assert re.search(r"Registered 20\d\d-.* UTC after \d+ results \(sha256 \w{12}\)\.", top)
    with open_catalog(catalog) as connection:
        (summary,) = summaries(connection, STUDY)
    for sentence in (*(one for one, _ in summary.outcomes()), *summary.recommended()):
        assert sentence in top
    for reason in summary.distrust():
        assert reason in top
    assert (opened.page.locator("svg.dots").bounding_box() or {})["y"] < 900


def test_sections_are_folded_until_a_link_opens_one(chrome, report):
    page = chrome.new_page(viewport={"width": 1280, "height": 900})
    page.goto(report.as_uri())
    assert page.locator("details.part[open]").count() == 0
    page.click(".menu > summary")
    page.click('.menu a[href="#cost"]')
    assert page.locator("details.part[open]").count() == 1
    assert page.locator("#cost table").is_visible()
    page.close()


def test_every_panel_draws_marks_inside_its_frame(opened):
    script = """charts => charts.map(chart => {
        const frame = chart.getBoundingClientRect();
        const inside = part => {
            const box = part.getBoundingClientRect();
            return box.width > 0 && box.left >= frame.left - 1 && box.right <= frame.right + 1
                && box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1;
        };
        const marks = [...chart.querySelectorAll('[data-value], [data-value-of-done]')];
        const texts = [...chart.querySelectorAll('text')].filter(text => text.textContent);
        return {title: chart.dataset.chart, marks: marks.length,
                outside: [...marks, ...texts].filter(part => !inside(part))
                    .map(part => part.outerHTML)};
    })"""
    charts = opened.page.eval_on_selector_all("svg.chart", script)
    assert len(charts) > 20
    for chart in charts:
        assert chart["marks"] > 0, chart["title"]
        assert chart["outside"] == [], chart["title"]


SEEDS = "SELECT method, frozen, eval_length, {} FROM scores WHERE is_default AND benchmark = '{}'"
BY = " GROUP BY method, frozen, eval_length HAVING count(*)"
PLOTTED = [
    ("perplexity: stdlib", ("x", "lowest", "highest", "value"),
     SEEDS.format("min(value), max(value), avg(value)", "perplexity") + BY + " = 3"),
    ("perplexity: stdlib", ("x", "value-of-done"),
     SEEDS.format("avg(value)", "perplexity") + BY + " < 3"),
    ("passkey: passkey", ("x", "value-of-done"),
     SEEDS.format("avg(value)", "passkey") + BY + " < 3"),
    ("Retrieval", ("block", "x", "value"),
     "SELECT method, frozen, benchmark, eval_length, avg(value) FROM scores WHERE is_default"
     " AND benchmark IN ('needle', 'passkey') GROUP BY ALL HAVING count(*) = 3"),
    # The catalog's bins are 64 tokens wide, the picture's at least 1024 / 32.
    ("Loss by position: nll by position, 1,024 tokens", ("x", "value"),
     "SELECT method, frozen, position_bin, avg(nll) FROM token_nll JOIN cells USING (cell)"
     " WHERE eval_length = 1024 GROUP BY ALL HAVING count(*) = 3"),
    ("Needles by length and depth: passkey/passkey", ("x", "depth", "value"),
     "SELECT c.method, c.frozen, c.eval_length, s.depth, avg(s.score)"
     " FROM samples s JOIN cells c USING (cell) WHERE c.benchmark = 'passkey'"
     " GROUP BY ALL HAVING count(DISTINCT c.seed) = 3"),
    ("Training loss", ("x", "value"),
     "SELECT method, frozen, (tokens // 80) * 80, avg(loss) FROM trainings JOIN ("
     " SELECT DISTINCT method, frozen, checkpoint FROM scores WHERE NOT frozen"
     ") USING (checkpoint) GROUP BY ALL"),
]  # fmt: skip
"""Figures, the facts of their marks, and independent SQL that gives the same numbers."""


@pytest.mark.parametrize(("figure", "facts", "sql"), PLOTTED)
def test_a_figure_plots_the_means_of_the_catalog(opened, catalog, figure, facts, sql):
    assert close(opened.plotted(figure, *facts), rows_of(catalog, sql))


def test_only_methods_with_all_their_cells_are_framed_as_best(opened):
    script = "fields => fields.map(f => [f.dataset.block, +f.dataset.x, f.dataset.method])"
    framed = opened.page.eval_on_selector_all("g.field.best", script)
    # One of three seeds of ntk_32k has needle 1.0 and perplexity 3.5; two seeds of yarn have 0.8.
    assert {tuple(one) for one in framed if one[1] >= 512} == {
        ("perplexity", 512, "lm_infinite"), ("perplexity", 1024, "lm_infinite"),
        ("needle", 512, "yarn"), ("needle", 1024, "yarn"), ("needle", 1024, "self_extend"),
        ("passkey", 512, "yarn"), ("passkey", 512, "self_extend"),
        ("passkey", 1024, "self_extend"),
    }  # fmt: skip
    absent = opened.page.text_content('.row[data-method="ntk_32k"] .field.absent >> nth=0')
    assert absent == "-"


def test_nll_differences_from_the_base_model_are_on_the_same_positions(opened, catalog):
    gained = f"SELECT method, frozen, band, gain FROM ({GAINS}) WHERE eval_length = 512"
    expected = rows_of(catalog, gained)
    title = "nll by position, 512 tokens against the base model"
    table = f'[data-figure="{title}"] table.gains'
    rows = opened.page.query_selector_all(f"{table} tbody tr")
    found = {
        (
            row.get_attribute("data-method"),
            row.get_attribute("data-frozen") == "true",
            band,
            float(cell.get_attribute("data-value") or "nan"),
        )
        for row in rows
        for band, cell in enumerate(row.query_selector_all("td"))
    }
    assert close(found, expected)
    heads = opened.page.eval_on_selector_all(
        f"{table} th.number", "all => all.map(h => h.innerText)"
    )
    assert tuple(heads) == BANDS[:3]
    # The best of each column is bold.
    best = opened.page.eval_on_selector_all(
        f"{table} td b", "all => all.map(b => Number(b.parentElement.dataset.value))"
    )
    assert set(best) == {min(row[3] for row in found if row[2] == one) for one in range(3)}


def test_scatters_pair_the_two_scores_of_a_method(opened, catalog):
    sql = """
        SELECT p.method, p.frozen, p.value, d.value
        FROM benchmark_by_length p JOIN benchmark_by_length d USING (method, frozen, eval_length)
        WHERE p.benchmark = 'perplexity' AND d.benchmark = 'passkey' AND eval_length = {}
            AND p.value IS NOT NULL AND d.value IS NOT NULL"""
    dots = opened.data('svg.scatter[data-chart^="passkey at"] .dot')
    (picture,) = opened.data('svg.scatter[data-chart^="passkey at"]')
    at = int(re.sub(r"\D", "", picture["chart"]))
    found = {_row(dot, ("x", "value")) for dot in dots}
    assert close(found, rows_of(catalog, sql.format(at)))


def test_tables_by_task_show_all_means(opened, catalog):
    cells = opened.data("table.scores td[data-value]")
    found = {(cell["task"], int(cell["length"]), float(cell["value"])) for cell in cells}
    sql = "SELECT task, eval_length, value FROM score_by_length WHERE value IS NOT NULL"
    assert found == rows_of(catalog, sql)


def compare_two(page: Page, catalog: Path, first: str, second: str) -> int:
    """Pick two methods; the page shows the catalog's rows. Return their number."""

    def variant(label: str) -> str:
        name, _, tuned = label.partition(" ")
        return f"'{name}' AND {'NOT ' * bool(tuned)}"

    lists = page.locator("#pairs select")
    lists.nth(0).select_option(first)
    lists.nth(1).select_option(second)
    shown = {
        tuple(row.locator("th, td").all_inner_texts())
        for row in page.locator("#pairs tbody tr").all()
    }
    rows = rows_of(
        catalog,
        "SELECT replace(benchmark, '_', ' '), format('{:,}', eval_length),"
        " format('{:+.3f}', difference + 0.0) || coalesce(format(' [{:+.3f}, {:+.3f}]',"
        " ci_low, ci_high), ''), verdict FROM paired_difference"
        f" WHERE method = {variant(first)}frozen"
        f" AND other_method = {variant(second)}other_frozen",
    )
    assert {(row[0], row[1], row[4], row[6]) for row in shown} == rows
    return len(rows)


def test_two_perplexities_have_the_catalogs_interval_in_both_directions(chrome, tmp_path):
    catalog = written(tmp_path / "catalog.duckdb", losses())
    opened = open_report(chrome, write_report(catalog, "s", tmp_path / "s.html"))
    for pair in (("yarn tuned", "pi tuned"), ("pi tuned", "yarn tuned")):
        assert compare_two(opened.page, catalog, *pair) == 1
    opened.page.close()
    assert opened.errors == []


@pytest.mark.parametrize(("first", "second"), [("yarn tuned", "pi"), ("pi", "yarn tuned")])
def test_two_methods_are_compared_on_every_benchmark_and_length(first, second, used, catalog):
    assert compare_two(used.page, catalog, first, second) > 5
    lists, address = used.page.locator("#pairs select"), used.page.url
    assert address.endswith(
        f"#at=pairs&pairs={first.replace(' ', '+')}&pairs={second.replace(' ', '+')}"
    )
    used.page.reload()
    assert [lists.nth(0).input_value(), lists.nth(1).input_value()] == [first, second]
    lists.nth(1).select_option(first)
    (text,) = used.page.locator("#pairs tbody").all_inner_texts()
    assert text == "Both are the same method."


def test_pointing_highlights_a_method_in_all_panels_and_shows_the_tooltip_of_a_mark(used):
    everything = used.series("map(s => s.dataset.method + s.dataset.frozen)")
    dimmed = (
        "filter(s => s.classList.contains('dim')).map(s => s.dataset.method + s.dataset.frozen)"
    )
    used.page.hover('.row[data-method="pi"][data-frozen="false"] .name >> nth=0')
    others = [one for one in everything if one != "pifalse"]
    assert used.series(dimmed) == others
    used.page.hover("h1")
    assert used.series(dimmed) == []
    used.page.focus("#picker")
    used.page.keyboard.type("pi tuned")
    used.page.hover("h1")
    assert used.series(dimmed) == others
    used.page.hover(".field.best >> nth=0")
    assert "perplexity at" in used.page.inner_text("#tooltip")
    used.page.hover("h1")
    assert not used.page.is_visible("#tooltip")


def test_a_click_on_a_header_sorts_the_table_also_by_keyboard(used):
    used.page.eval_on_selector_all("details.task", "all => all.forEach(one => one.open = true)")
    table = used.page.locator("table.scores").first
    head = table.locator("thead tr").last.locator("th").nth(1)

    def values() -> list[float]:
        script = "rows => rows.map(r => r.cells[1].dataset.value).filter(Boolean).map(Number)"
        found: list[float] = table.locator("tbody tr").evaluate_all(script)
        return found

    before = values()
    head.locator("button").focus()
    used.page.keyboard.press("Enter")
    assert (head.get_attribute("aria-sort"), values()) == ("ascending", sorted(before))
    used.page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") == "descending"
    assert values() == sorted(before, reverse=True) != sorted(before)
    table.locator("thead tr").last.locator("button").first.click()
    names = table.locator("tbody th").all_inner_texts()
    assert names == sorted(names)
    assert head.get_attribute("aria-sort") is None
    # Rows without a value are the last ones, in both orders.
    assert len(before) < len(names)


def test_names_and_headers_stay_visible_when_a_table_scrolls(used):
    used.page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
    used.page.set_viewport_size({"width": 400, "height": 900})
    scrolled = used.page.eval_on_selector_all(
        ".scroll",
        """boxes => boxes.filter(box => box.scrollWidth > box.clientWidth).map(box => {
            const name = box.querySelector("tbody th");
            const before = name.getBoundingClientRect().left;
            box.scrollLeft = 10000;
            return Math.abs(name.getBoundingClientRect().left - before);
        })""",
    )
    assert len(scrolled) > 5
    assert max(scrolled) < 20
    used.page.set_viewport_size({"width": 1280, "height": 900})
    # Only tables of more than 40 rows scroll in a box of their own.
    assert used.page.eval_on_selector_all(
        ".scroll",
        "all => all.every(one => (one.scrollHeight > one.clientHeight + 1)"
        " <= (one.querySelectorAll('tbody tr').length > 40))",
    )
    gap = used.page.locator("table.scores").first.evaluate(
        """table => {
            const row = [...table.tBodies[0].rows].at(-1);
            scrollTo(0, scrollY + row.getBoundingClientRect().top - 300);
            const bar = document.querySelector("div.bar").getBoundingClientRect();
            return table.tHead.getBoundingClientRect().top - bar.bottom;
        }"""
    )
    assert abs(gap) < 3


def test_figures_are_saved_as_csv_and_svg(used, tmp_path):
    figure = '[data-figure="needle: needle"]'
    for kind in ("csv", "svg"):
        with used.page.expect_download() as saved:
            used.page.click(f'{figure} [data-save="{kind}"]')
        saved.value.save_as(tmp_path / saved.value.suggested_filename)
    with (tmp_path / "sample-needle-needle.csv").open(encoding="utf-8", newline="") as file:
        (_, *heads), *rows = csv.reader(file)
    table = {
        (name.removesuffix(" tuned"), not name.endswith(" tuned"), head, float(value))
        for name, *values in rows
        for head, value in zip(heads, values, strict=True)
        if value
    }
    expected = set()
    for method, frozen, x, value, low, high in used.plotted(
        "needle: needle", "x", "value", "lowest", "highest"
    ):
        expected.add((method, frozen, f"{x:,.0f}", value))
        if low < high:
            expected |= {
                (method, frozen, f"{x:,.0f} {name}", end)
                for name, end in (("low", low), ("high", high))
            }
    assert table == expected
    assert any(head.endswith("low") for head in heads)
    drawn = ET.parse(tmp_path / "sample-needle-needle.svg")
    marks = [part for part in drawn.iter() if "data-value" in part.attrib]
    assert len(marks) == len(used.data(f"{figure} svg [data-value]")) > 0


def test_the_page_sends_no_request_and_logs_no_error(opened, report):
    assert {url for url in opened.requests if not url.startswith("blob:")} <= {
        report.as_uri(), "data:,",
    }  # fmt: skip
    assert opened.errors == []
