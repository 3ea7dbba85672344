"""axe-core finds no serious fault on the report: light and dark, narrow and wide.

Strategy: open the report in an installed Chromium with all details expanded, and run axe-core.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from catalog.build import build_catalog
from catalog.mlflow_pages import note_pages
from dashboards.report import report_page
from tests.support.accessibility import faults
from tests.support.catalogs.sample_store import STUDY, sample_store

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.long, pytest.mark.browser]

WIDTHS = (400, 800, 1280)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    catalog = build_catalog(sample_store(tmp_path_factory.getbasetemp()), folder / "catalog.duckdb")
    note_pages(folder, STUDY, "7", {})
    path = folder / "report.html"
    path.write_text(report_page(catalog, STUDY), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_has_no_serious_fault(chrome: Browser, report: Path, scheme: str) -> None:
    page = chrome.new_page(color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(report.as_uri())
    page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert faults(page) == [], f"{width} px"
    page.close()


def test_axe_finds_a_planted_fault(chrome: Browser, report: Path) -> None:
    page = chrome.new_page()
    page.goto(report.as_uri())
    spoil(page)
    assert {one.split()[0] for one in faults(page)} == {
        "color-contrast", "scrollable-region-focusable", "svg-img-alt", "button-name",
    }  # fmt: skip
    page.close()


def spoil(page: Page) -> None:
    page.evaluate("""() => {
        document.querySelector("header p").style.color = "#bbb";
        document.querySelector("svg.chart").removeAttribute("aria-label");
        document.querySelector("button").textContent = "";
        const scroll = [...document.querySelectorAll(".scroll")].at(-1);
        scroll.removeAttribute("tabindex");
        scroll.querySelector("thead").remove();  // its buttons take the focus
        scroll.style.maxHeight = "30px";
        scroll.style.overflow = "auto";
    }""")
