"""Measure the time until a browser without a cache shows the first table of the dashboard.

An installed Chromium opens the dashboard of a catalog after its server has started. The CPU seconds
are those of the server. With --report FILE it measures a report instead: first paint, and the time
from a click to the next frame for opening the interactive chart of the first figure with curves,
highlighting and zooming.
"""

import os
import shutil
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from measuring import Row, at_most, measure
from playwright.sync_api import Browser, CDPSession, sync_playwright

from lce_core.access import SECRET_VARIABLE, login_link, new_secret
from tests.support.ports import listens, unused_port
from tests.support.studies import wait_until

_WAIT_SECONDS = 120.0
_READING_SECONDS = 2.0
"""A reader needs at least this long to find the first chart. The page loads Vega meanwhile."""
_VIEW: Any = {"width": 1280, "height": 900}
_CLICK = """selector => new Promise(done => {
    const begun = performance.now();
    document.querySelector(selector).click();
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - begun)));
})"""
"""Clicks, and returns the milliseconds until the next frame was painted."""
_PAINT = """() => new Promise(done => new PerformanceObserver(list => {
    const paint = list.getEntriesByName("first-contentful-paint")[0];
    if (paint) done(paint.startTime);
}).observe({ type: "paint", buffered: true }))"""
_CLICKS = {
    "the interactive chart is open": "#measured .open",
    "a highlight is drawn": "#measured button.key",
    "a zoom is drawn": "#measured .curves .tools button",
}
Cost = tuple[float, float]
"""Wall time, and CPU time of the server or page."""


def rows(options: Namespace) -> Iterator[Row]:
    file = Path(options.report or options.catalog)
    if not file.is_file():
        sys.exit(f"{file}: no such file; run `make study` first, or name another")
    measured = of_report if options.report else of_dashboard
    rounds = []
    with sync_playwright() as playwright:
        for number in range(options.rounds):
            if not (options.report and number):  # dashboards open in a fresh browser
                browser = playwright.chromium.launch(
                    executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
                )
            rounds.append(dict(measured(browser, file)))
    unit, max_seconds = ("ms", None) if options.report else ("s", 3.0)
    for name in rounds[0]:
        wall, cpu = (statistics.median(one) for one in zip(*(r[name] for r in rounds), strict=True))
        figures = {f"median {unit}": wall, f"CPU {unit}": cpu, "limit": at_most(wall, max_seconds)}
        yield {f"until, {file.stat().st_size / 1e6:.1f} MB": name, **figures}


def of_report(browser: Browser, report: Path) -> Iterator[tuple[str, Cost]]:
    """Yield milliseconds until a report's first paint, and from clicks to the next frame."""
    page = browser.new_page(viewport=_VIEW)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.goto(report.resolve().as_uri())
    yield "first paint", (page.evaluate(_PAINT), _spent(session))
    page.wait_for_timeout(_READING_SECONDS * 1000)
    page.evaluate(
        "document.querySelector('figure:has(.open)').id = 'measured';"
        "document.querySelector('details:has(#measured)').open = true"
    )
    for name, selector in _CLICKS.items():
        before = _spent(session)
        clock = page.evaluate(_CLICK, selector)
        yield name, (clock, _spent(session) - before)
    page.close()


def _spent(session: CDPSession) -> float:
    """Return the milliseconds of CPU time that the page's main thread has spent on tasks."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(1000 * one["value"] for one in metrics if one["name"] == "TaskDuration")


def of_dashboard(browser: Browser, catalog: Path) -> Iterator[tuple[str, Cost]]:
    """Start a server; yield the seconds until a new visitor sees the first table."""
    port, secret = unused_port(), new_secret()
    server = subprocess.Popen(
        [sys.executable, "-m", "dashboards.app", str(catalog), str(port)],
        stdout=subprocess.DEVNULL,
        env={**os.environ, SECRET_VARIABLE: secret},
    )
    try:
        wait_until(lambda: listens(port), _WAIT_SECONDS)
        page = browser.new_page(viewport=_VIEW)
        page.set_default_timeout(1000 * _WAIT_SECONDS)
        process = psutil.Process(server.pid)
        begun, cpu = time.monotonic(), _cpu(process)
        page.goto(login_link(f"http://127.0.0.1:{port}", secret))
        page.get_by_test_id("stDataFrame").locator("canvas").first.wait_for()
        yield "first view", (time.monotonic() - begun, _cpu(process) - cpu)
        browser.close()
    finally:
        server.kill()
        server.wait()


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    measure(__doc__, rows, catalog="lce-home/catalog.duckdb", report="", rounds=3)
