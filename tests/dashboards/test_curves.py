"""Interactive curves show the panels' values, zoom, and keep the choice in the address.

Strategy: use one figure as a reader does, and read data, axes and opacities from Vega's view.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.accessibility import faults

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.slow

FIGURE = '[data-figure="perplexity: stdlib"]'


@pytest.fixture
def page(chrome, report) -> Iterator[Page]:
    page = chrome.new_page(viewport={"width": 1280, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text))
    page.goto(report.as_uri())
    unfold(page)
    yield page
    page.close()
    assert errors == []  # an expression that needs eval would be refused by the page's policy


def unfold(page: Page) -> None:
    page.eval_on_selector_all("details.part", "all => all.forEach(one => one.open = true)")


def opened(page: Page) -> None:
    page.click(f"{FIGURE} .open")
    drawn(page)


def drawn(page: Page) -> None:
    page.wait_for_function(f"document.querySelector('{FIGURE}').view !== undefined")


def asked(page: Page, expression: str) -> Any:
    """Evaluate an expression with Vega's `view` of the figure."""
    return page.evaluate(f"(view => {expression})(document.querySelector('{FIGURE}').view)")


def domains(page: Page) -> tuple[list[float], list[float]]:
    return asked(page, "view.scale('x').domain()"), asked(page, "view.scale('y').domain()")


def bright(page: Page) -> set[str]:
    """Return the methods whose lines in the chart are not dimmed."""
    script = """all => all.filter(mark => +getComputedStyle(mark).opacity > 0.5)
        .map(mark => mark.__data__.datum.method)"""
    return set(page.eval_on_selector_all(f"{FIGURE} .mark-symbol path", script))


def test_the_chart_has_every_mark_and_tooltip_of_the_panels(page):
    panels = page.eval_on_selector_all(
        f"{FIGURE} .panels [data-value]",
        "all => all.map(m => [m.dataset.method + (m.dataset.frozen === 'true' ? '' : ' tuned'),"
        " +m.dataset.x, +m.dataset.value])",
    )
    opened(page)
    rows = asked(page, "view.data('source_0').map(row => [row.method, row.x, row.y])")
    assert sorted(map(tuple, rows)) == sorted(set(map(tuple, panels))) != []
    assert not page.is_visible(f"{FIGURE} .panels")
    page.locator(f"{FIGURE} .mark-symbol path").last.hover()
    assert page.inner_text("#tooltip") in page.eval_on_selector_all(
        f"{FIGURE} .panels [data-value]", "all => all.map(mark => mark.dataset.tooltip)"
    )
    page.click(f"{FIGURE} .open")
    assert page.is_visible(f"{FIGURE} .panels")
    assert not page.is_visible(f"{FIGURE} .drawing")


def test_vega_loads_after_the_page_and_one_chart_is_drawn_out_of_sight(chrome, report):
    page = chrome.new_page()
    page.add_init_script("window.requestIdleCallback = act => (window.idle ??= []).push(act)")
    page.goto(report.as_uri())
    assert not page.evaluate("'vega' in window")
    assert (
        page.evaluate("""async () => {
        while (window.idle.length) await window.idle.shift()();
        return [typeof vega, typeof vegaLite, typeof vegaInterpreter];
    }""")
        == ["object"] * 3
    )
    assert page.locator(".curves, [data-vendored]").count() == 0
    page.close()


def test_buttons_and_the_wheel_with_control_zoom_and_drags_move(page):
    opened(page)
    whole = domains(page)
    page.click(f"{FIGURE} >> text=Zoom in")
    x, y = domains(page)
    assert whole[0][0] < x[0] < x[1] < whole[0][1]
    assert whole[1][0] < y[0] < y[1] < whole[1][1]
    page.click(f"{FIGURE} >> text=Show all")
    assert domains(page) == whole
    page.locator(f"{FIGURE} .drawing").hover()
    page.mouse.wheel(0, -200)
    assert domains(page) == whole  # the plain wheel scrolls the page
    page.evaluate(f"document.querySelector('{FIGURE}').scrollIntoView()")
    box = page.locator(f"{FIGURE} .drawing").bounding_box()
    assert box is not None
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(*middle)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    page.wait_for_function(
        f"document.querySelector('{FIGURE}').view.scale('x').domain()[0] > {whole[0][0]}"
    )
    zoomed = domains(page)
    page.mouse.down()
    page.mouse.move(middle[0] + 80, middle[1])
    page.mouse.up()
    moved = domains(page)
    assert moved[0][0] < zoomed[0][0]
    assert moved[0][1] < zoomed[0][1]


def test_several_methods_are_highlighted_and_kept_in_the_address(page):
    opened(page)
    everything = bright(page)
    methods = ["pi tuned", "yarn tuned"]
    assert set(methods) < everything
    for method in methods:
        page.click(f'{FIGURE} button.key >> text="{method}"')
    page.hover("h1")
    assert bright(page) == set(methods)
    assert "lit=pi+tuned&lit=yarn+tuned" in page.url
    page.reload()
    unfold(page)
    drawn(page)
    assert bright(page) == set(methods)
    assert page.locator("#chosen button").count() == 2
    dimmed = page.eval_on_selector_all(
        ".series.dim", "all => all.map(s => s.dataset.method + s.dataset.frozen)"
    )
    assert "lm_infinitetrue" in dimmed
    assert {"pifalse", "yarnfalse"}.isdisjoint(dimmed)
    page.click(f'{FIGURE} button.key >> text="yarn tuned"')
    page.click("#chosen button")
    assert bright(page) == everything
    assert "lit" not in page.url


def test_links_to_sections_keep_the_choice(page):
    page.select_option("#picker", "yarn tuned")
    page.click(".menu summary")
    page.click('nav a[href="#cost"]')
    page.wait_for_function("location.hash.includes('at=cost')")
    assert page.url.endswith("#lit=yarn+tuned&at=cost")
    page.reload()
    top = page.evaluate("document.getElementById('cost').getBoundingClientRect().top")
    assert 0 <= top < 900


def test_the_chart_has_no_serious_fault_and_print_shows_the_panels(page):
    opened(page)
    page.click(f'{FIGURE} button.key >> text="yarn tuned"')
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        assert faults(page) == [], scheme
    page.emulate_media(media="print")
    assert page.is_visible(f"{FIGURE} .panels")
    assert not page.is_visible(f"{FIGURE} .drawing")
