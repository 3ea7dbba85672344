"""axe-core finds no serious fault on the report with all details open, at any width and colour."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from catalog.mlflow_pages import note_pages
from dashboards.report import report_page
from tests.support.accessibility import faults
from tests.support.catalogs.sample_store import STUDY

pytestmark = pytest.mark.slow

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
