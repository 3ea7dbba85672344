"""The report is readable at 400, 800 and 1280 pixels: nothing is clipped or out of reach.

Strategy: open the report of a real catalog in a headless Chromium and measure boxes and texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog.build import build_catalog
from dashboards.report import write_report
from tests.support.catalogs.sample_store import STUDY, sample_store

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.slow, pytest.mark.browser]

CLIPPED = """cells => cells.filter(cell => cell.innerText).filter(cell => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    const text = range.getBoundingClientRect();
    const box = cell.closest("tr").getBoundingClientRect();
    return text.left < box.left - 1 || text.right > box.right + 1 || box.right > innerWidth;
}).map(cell => cell.innerText)"""
"""Texts of the cells that leave their row or the screen."""
BROKEN = """names => names.flatMap(name => {
    const text = name.firstChild;
    return [...text.data.matchAll(/\\S+/g)].filter(word => {
        const range = document.createRange();
        range.setStart(text, word.index);
        range.setEnd(text, word.index + word[0].length);
        return range.getClientRects().length > 1;
    }).map(word => word[0]);
})"""
"""Words of these elements that a line break divides."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    catalog = build_catalog(sample_store(tmp_path_factory.getbasetemp()), folder / "catalog.duckdb")
    return write_report(catalog, STUDY, folder / "report.html")


@pytest.fixture(params=[400, 800, 1280])
def page(request: pytest.FixtureRequest, chrome: Browser, report: Path) -> Iterator[Page]:
    page = chrome.new_page(viewport={"width": request.param, "height": 900})
    page.goto(report.as_uri())
    yield page
    page.close()


def test_the_page_scrolls_only_down(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_paper_is_wide_enough_for_every_table(chrome: Browser, report: Path) -> None:
    page = chrome.new_page(viewport={"width": 703, "height": 900})  # A4 without its margins
    page.goto(report.as_uri())
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()


def test_a_menu_in_one_row_reaches_every_section(page: Page) -> None:
    assert page.evaluate("document.querySelector('div.bar').offsetHeight") < 60
    page.click(".menu summary")
    links = page.locator("nav a")
    targets = [link.get_attribute("href") for link in links.all()]
    sections = page.eval_on_selector_all("section", "all => all.map(one => `#${one.id}`)")
    assert targets == sections != []
    for box in (link.bounding_box() for link in links.all()):
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= page.evaluate("innerWidth")
    page.keyboard.press("Escape")
    assert not links.last.is_visible()
    page.click(".menu summary")
    links.last.click()
    assert not links.last.is_visible()
    assert page.url.endswith(targets[-1] or "")


@pytest.mark.parametrize("table", [".leaders", ".samples", ".two"])
def test_every_column_of_answers_is_visible(page: Page, table: str) -> None:
    cells = f"{table} tbody :is(th, td)"
    assert page.locator(cells).count() > 5
    assert page.eval_on_selector_all(cells, CLIPPED) == []
    names = page.eval_on_selector_all(f"{table} thead th", "all => all.map(th => th.textContent)")
    shown = page.eval_on_selector_all(
        cells, "all => all.map(cell => getComputedStyle(cell, '::before').content)"
    )
    if not page.is_visible(f"{table} thead"):  # the rows are cards
        assert {f'"{name}"' for name in names} == set(shown)


def test_no_name_of_a_method_is_broken(page: Page) -> None:
    page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
    assert page.eval_on_selector_all("tbody th code", BROKEN) == []


def test_lines_between_rows_are_drawn_under_sticky_names(page: Page) -> None:
    page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
    style = "all => all.map(th => getComputedStyle(th).borderTopWidth)"
    assert set(page.eval_on_selector_all(".scores tbody th", style)) == {"1px"}


def test_heat_maps_link_to_the_answers_of_their_benchmarks(page: Page) -> None:
    links = page.locator("#glance figcaption a")
    assert links.all_inner_texts() == ["needle", "passkey"]
    for link in links.all():
        target = (link.get_attribute("href") or "").removeprefix("#")
        heading = page.locator(f"[id='{target}']").inner_text()
        assert heading.startswith(link.inner_text())
