"""The report is readable at 400, 800 and 1280 pixels: nothing is clipped or out of reach, and
axe-core finds no serious fault with all details open.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog.mlflow_pages import note_pages
from dashboards.report import report_page
from tests.support.accessibility import faults
from tests.support.catalogs.sample_store import STUDY

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow

CLIPPED = """cells => cells.filter(cell => cell.innerText).filter(cell => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    const text = range.getBoundingClientRect();
    const box = cell.closest("tr").getBoundingClientRect();
    return text.left < box.left - 1 || text.right > box.right + 1 || box.right > innerWidth;
}).map(cell => cell.innerText)"""
"""Texts of the cells that leave their row or the screen."""


@pytest.fixture(scope="module", params=[400, 800, 1280])
def page(request, chrome, report) -> Page:
    """The page at one width, with all details open."""
    page = chrome.new_page(viewport={"width": request.param, "height": 900})
    page.goto(report.as_uri())
    page.eval_on_selector_all("section details", "all => all.forEach(one => one.open = true)")
    return page


def test_the_page_scrolls_only_down(page):
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_paper_is_wide_enough_for_every_table(chrome, report):
    page = chrome.new_page(viewport={"width": 703, "height": 900})  # A4 without its margins
    page.goto(report.as_uri())
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_menu_in_one_row_reaches_every_section(page):
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


def test_every_column_of_answers_is_visible(page):
    for table in (".samples", ".two"):
        cells = f"{table} tbody :is(th, td)"
        assert page.locator(cells).count() > 5
        assert page.eval_on_selector_all(cells, CLIPPED) == []
        heads = f"{table} thead th"
        names = page.eval_on_selector_all(heads, "all => all.map(th => th.textContent)")
        shown = page.eval_on_selector_all(
            cells, "all => all.map(cell => getComputedStyle(cell, '::before').content)"
        )
        if not page.is_visible(f"{table} thead"):  # the rows are cards
            assert {f'"{name}"' for name in names} == set(shown)


def test_heat_maps_link_to_the_answers_of_their_benchmarks(page):
    links = page.locator("#glance figcaption a")
    assert links.all_inner_texts() == ["needle", "passkey"]
    for link in links.all():
        target = (link.get_attribute("href") or "").removeprefix("#")
        heading = page.locator(f"[id='{target}']").inner_text()
        assert heading.startswith(link.inner_text())


SPOIL = """() => {
    document.querySelector("header p").style.color = "#bbb";
    document.querySelector("svg.chart").removeAttribute("aria-label");
    document.querySelector("button").textContent = "";
    const scroll = [...document.querySelectorAll(".scroll")].at(-1);
    scroll.removeAttribute("tabindex");
    scroll.querySelector("thead").remove();  // its buttons take the focus
    scroll.style.maxHeight = "30px";
    scroll.style.overflow = "auto";
}"""


@pytest.fixture(scope="module")
def linked(catalog, tmp_path_factory) -> Path:
    """The report with its links to MLflow."""
    folder = tmp_path_factory.mktemp("linked")
    note_pages(folder, STUDY, "7", {})
    path = folder / "report.html"
    path.write_text(report_page(Path(shutil.copy(catalog, folder)), STUDY), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_has_no_serious_fault(chrome, linked, scheme):
    page = chrome.new_page(color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(linked.as_uri())
    page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
    for width in (400, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert faults(page) == [], f"{width} px"


def test_axe_finds_a_planted_fault(chrome, linked):
    page = chrome.new_page()
    page.goto(linked.as_uri())
    page.eval_on_selector_all("details.part", "all => all.forEach(one => one.open = true)")
    page.evaluate(SPOIL)
    assert {one.split()[0] for one in faults(page)} == {
        "color-contrast", "scrollable-region-focusable", "svg-img-alt", "button-name",
    }  # fmt: skip
