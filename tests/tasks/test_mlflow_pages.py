"""The pages that reports and commands link to, in the real MLflow UI and a real browser."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from catalog.mlflow_pages import MlflowPages, pages_of
from lce_core.access import login_link, new_secret
from lce_core.store.artifacts import Store
from lce_core.store.records import write_json
from tasks.tracking import project
from tests.support.guarded_mlflow import guarded_mlflow
from tests.support.tracked_studies import plan_study

pytestmark = pytest.mark.slow

SECRET = new_secret()
NUM_METHODS = 12
"""Two more than the UI draws of its own accord."""
SCORES = {"passkey/single", "passkey/single.overlap"}
SUMMARY = "summary/passkey_at_target"
SECONDS = 300.0
DRAWN = """charts => charts.map(chart => ({
    title: chart.closest('[data-testid]').innerText.split('\\n')[0],
    lines: [...chart.querySelectorAll('.scatterlayer path.js-line')]
        .filter(line => line.style.strokeOpacity === '1' && line.getAttribute('d').includes('L'))
        .map(line => line.style.stroke),
    bars: chart.querySelectorAll('.barlayer .point path').length,
    width: chart.clientWidth,
}))"""
"""Titles of the charts, colours of their lines, each of which is drawn again, pale, under itself,
numbers of their bars, and widths in pixels."""


@pytest.fixture
def pages(tmp_path) -> Iterator[MlflowPages]:
    store = Store(tmp_path)
    store.prepare()
    plan_study(store, rows=tuple((f"method_{number:02}", False) for number in range(NUM_METHODS)))
    project(store, "small")
    with guarded_mlflow(tmp_path, SECRET, {}) as address:
        (tmp_path / "services").mkdir()
        write_json(tmp_path / "services" / "mlflow.json", {"url": address})
        noted = pages_of(tmp_path, "small")
        assert noted is not None
        assert noted.server == address
        yield noted


def drawn(browser: Any, address: str, titles: set[str]) -> dict[str, dict[str, Any]]:
    """What the charts on a page show, by title, once these have a line or bar for each method."""
    page = browser.new_page()
    page.set_viewport_size({"width": 1280, "height": 1600})
    page.goto(address)
    page.wait_for_selector(".js-plotly-plot .scatterlayer path.js-line", state="attached")
    limit = time.monotonic() + SECONDS
    while True:
        charts = {c["title"]: c for c in page.eval_on_selector_all(".js-plotly-plot", DRAWN)}
        whole = set(charts) >= titles and all(
            NUM_METHODS in (len(charts[one]["lines"]), charts[one]["bars"]) for one in titles
        )
        if whole or time.monotonic() > limit:
            page.wait_for_timeout(500)  # for what else it may draw
            charts = {c["title"]: c for c in page.eval_on_selector_all(".js-plotly-plot", DRAWN)}
            page.close()
            return charts
        page.wait_for_timeout(200)


def test_the_pages_draw_a_line_for_each_method_and_for_each_group_of_seeds(pages, chrome):
    browser = chrome.new_context()
    browser.new_page().goto(login_link(pages.server, SECRET, "/version"))
    browser.pages[0].wait_for_url(f"{pages.server}/version")
    requests: list[str] = []
    browser.on("request", lambda request: requests.append(request.url))
    charts = drawn(browser, pages.methods, SCORES | {SUMMARY})
    assert set(charts) == SCORES | {SUMMARY}
    assert min(chart["width"] for chart in charts.values()) > 300  # MLflow's assistant stays shut
    for title in SCORES:
        assert len(charts[title]["lines"]) == NUM_METHODS
        assert len(set(charts[title]["lines"])) == NUM_METHODS
    assert charts[SUMMARY]["bars"] == NUM_METHODS
    of_seeds = drawn(browser, pages.seeds, SCORES)
    assert {len(of_seeds[title]["lines"]) for title in SCORES} == {NUM_METHODS}
    assert requests
    own = (pages.server, "data:", "blob:")
    assert [url for url in requests if not url.startswith(own)] == []
