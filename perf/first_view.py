"""Measure the time from `lce dashboard` to the first table, in a browser without a cache.

An installed Chromium opens the dashboard of a catalog. Each row of the table is one stage, with the
seconds since the previous stage and the CPU seconds of the server. A view is complete when the
first table is drawn. On a machine with other load the CPU seconds are more stable.

    python perf/first_view.py --catalog lce-home/catalog.duckdb [--rounds 3]

With --report it measures a report instead: first paint, and the time from a click to the next frame
for opening the interactive chart of the first figure with curves, highlighting and zooming.

    python perf/first_view.py --report lce-home/reports/toy.html [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from playwright.sync_api import Browser, CDPSession, sync_playwright

from lce_core.access import SECRET_VARIABLE, login_link, new_secret
from lce_core.store.records import environment

LIMIT_SECONDS = 3.0
_WAIT_SECONDS = 120.0
Cost = tuple[float, float]
"""Wall time, and CPU time of the server or page."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--catalog", type=Path, default=Path("lce-home/catalog.duckdb"))
    parser.add_argument("--report", type=Path)
    parser.add_argument("--rounds", type=int, default=3, help="number of server starts")
    options = parser.parse_args()
    if options.report:
        of_report(options.report, options.rounds)
        return
    if not options.catalog.is_file():
        parser.error(f"{options.catalog}: no such catalog; run `make study` first, or name another")
    rounds = [measured(options.catalog) for _ in range(options.rounds)]
    print("| until | median s | least s | server's CPU s | limit |\n|---|--:|--:|--:|--:|")
    for name in rounds[0]:
        clock, cpu = zip(*(one[name] for one in rounds), strict=True)
        limit = f"{LIMIT_SECONDS:g}" if name == "first view" else ""
        print(
            f"| {name} | {statistics.median(clock):.2f} | {min(clock):.2f}"
            f" | {statistics.median(cpu):.2f} | {limit} |"
        )
    print(f"\n{options.rounds} rounds, {options.catalog.stat().st_size / 1e6:.1f} MB of catalog")
    print(where())


_READING_SECONDS = 2.0
"""A reader needs at least this long to find the first chart. The page loads Vega meanwhile."""
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


def of_report(report: Path, rounds: int) -> None:
    """Print the milliseconds until a report's first paint, and from clicks to the next frame."""
    found: dict[str, list[Cost]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for _ in range(rounds):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})
            page.goto(report.resolve().as_uri())
            found.setdefault("first paint", []).append((page.evaluate(_PAINT), _spent(session)))
            page.wait_for_timeout(_READING_SECONDS * 1000)
            page.evaluate(
                "document.querySelector('figure:has(.open)').id = 'measured';"
                "document.querySelector('details:has(#measured)').open = true"
            )
            for name, selector in (
                ("the interactive chart is open", "#measured .open"),
                ("a highlight is drawn", "#measured button.key"),
                ("a zoom is drawn", "#measured .curves .tools button"),
            ):
                before = _spent(session)
                clock = page.evaluate(_CLICK, selector)
                found.setdefault(name, []).append((clock, _spent(session) - before))
            page.close()
        browser.close()
    print("| until | median ms | CPU ms |\n|---|--:|--:|")
    for name, costs in found.items():
        clock, cpu = zip(*costs, strict=True)
        print(f"| {name} | {statistics.median(clock):,.0f} | {statistics.median(cpu):,.0f} |")
    print(f"\n{rounds} rounds, {report.stat().st_size / 1e6:.2f} MB")
    print(where())


def _spent(session: CDPSession) -> float:
    """Return the milliseconds of CPU time that the page's main thread has spent on tasks."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(1000 * one["value"] for one in metrics if one["name"] == "TaskDuration")


def where() -> str:
    """Return the machine, its load and the commit."""
    known = environment()
    load = " ".join(f"{value:.1f}" for value in psutil.getloadavg())
    return f"{known['cpu']}, {known['cpu_count']} cores, load {load}, {known['git']}"


def measured(catalog: Path) -> dict[str, Cost]:
    """Start a server; return the cost of its start, of a first visit and of a second visit."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--catalog", str(catalog), "--port", str(port)]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        secret = new_secret()
        link = login_link(f"http://127.0.0.1:{port}", secret)
        begun = time.monotonic()
        server = subprocess.Popen(
            [sys.executable, "-m", "dashboards.app", *options],
            stdout=subprocess.DEVNULL,
            env={**os.environ, SECRET_VARIABLE: secret},
        )
        try:
            process = psutil.Process(server.pid)
            _until(lambda: listens(port))
            found = {"the server answers": (time.monotonic() - begun, _cpu(process))}
            for name in ("first view", "second visitor's view"):
                found[name] = view(browser, process, link)
        finally:
            server.kill()
            server.wait()
            browser.close()
    return found


def view(browser: Browser, server: psutil.Process, url: str) -> Cost:
    """Open the page in a new browser context; return the cost until the first table."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(1000 * _WAIT_SECONDS)
    begun, cpu = time.monotonic(), _cpu(server)
    page.goto(url)
    page.get_by_test_id("stDataFrame").locator("canvas").first.wait_for()
    found = time.monotonic() - begun, _cpu(server) - cpu
    context.close()
    return found


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + _WAIT_SECONDS
    while not met():
        assert time.monotonic() < end, "the server did not start"
        time.sleep(0.02)


if __name__ == "__main__":
    main()
