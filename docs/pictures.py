"""Take the screenshots for the documentation, in an installed Chromium.

    python docs/pictures.py CATALOG STUDY [--mlflow] [--dashboard]

writes docs/images/STUDY-WIDTH.png, the study's report in three widths, and the widest also in dark
mode. --mlflow adds STUDY-mlflow.png (needs a running `lce up` of the catalog's home), --dashboard
adds dashboard-STUDY.png, the dashboard's page of answers.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from catalog.mlflow_pages import pages_of
from dashboards.report import write_report
from lce_core.access import login_link, server_secret

IMAGES = Path(__file__).parent / "images"
SIZES = {400: 1500, 800: 1500, 1600: 1180}
"""Width and height of the screenshots in pixels. The heights show the table of the best methods."""
DASHBOARD_PORT = 8517
ANSWERS = "asked=needle: single&method=yarn&length=1,024"


def save(page: Page, name: str) -> None:
    """Save a screenshot with 256 colours, which halves the size of the file; close the page."""
    path = IMAGES / name
    page.screenshot(path=path)
    page.close()
    with Image.open(path) as image:
        few = image.convert("RGB").quantize(256, kmeans=2, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    print(path)


def of_report(browser: Browser, catalog: Path, study: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        report = write_report(catalog, study, Path(folder) / "report.html")
        for width, height in SIZES.items():
            for scheme in ("light", "dark")[: 1 + (width == max(SIZES))]:
                size = {"width": width, "height": height}
                page = browser.new_page(viewport=size, color_scheme=scheme)
                page.goto(report.as_uri())
                save(page, f"{study}-{width}{'-dark' if scheme == 'dark' else ''}.png")


def of_mlflow(browser: Browser, home: Path, study: str) -> None:
    pages = pages_of(home, study)
    assert pages is not None, f"MLflow has no study {study}"
    link = login_link(
        pages.server, server_secret(home, "mlflow"), pages.methods.removeprefix(pages.server)
    )
    page = browser.new_page(viewport={"width": 1600, "height": 1000})
    page.goto(link)
    drawn = ".js-plotly-plot .scatterlayer path.js-line"
    # A line of a single point has no size, so waiting until it is visible would never end.
    page.wait_for_selector(drawn, timeout=120_000, state="attached")
    if (close := page.get_by_role("button", name="Close")).count():
        close.last.click()  # the side panel
    page.wait_for_timeout(10_000)  # until all visible charts are drawn
    save(page, f"{study}-mlflow.png")


def of_dashboard(browser: Browser, catalog: Path, study: str) -> None:
    command = [sys.executable, "-m", "dashboards.app", str(catalog), str(DASHBOARD_PORT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        link = server.stdout.readline().split()[0]
        try:
            until_listens(DASHBOARD_PORT)  # it prints the link before it listens
            size = {"width": 1280, "height": 1060}
            page = browser.new_page(viewport=size, color_scheme="light")
            page.goto(link)
            page.get_by_test_id("stAppViewContainer").wait_for()
            page.goto(f"http://127.0.0.1:{DASHBOARD_PORT}/answers?study={study}&{ANSWERS}")
            page.get_by_test_id("stDataFrame").wait_for()
            page.wait_for_timeout(2000)  # until the charts' animations end
            save(page, f"dashboard-{study}.png")
        finally:
            server.terminate()


def until_listens(port: int) -> None:
    """Wait until a server listens on the port, or 20 seconds."""
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description="Take the screenshots for the documentation.")
    parser.add_argument("catalog", type=Path)
    parser.add_argument("study")
    parser.add_argument("--mlflow", action="store_true", help="also take MLflow's charts")
    parser.add_argument("--dashboard", action="store_true", help="also take the dashboard")
    options = parser.parse_args()
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        of_report(browser, options.catalog, options.study)
        if options.mlflow:
            of_mlflow(browser, options.catalog.absolute().parent, options.study)
        if options.dashboard:
            of_dashboard(browser, options.catalog, options.study)
        browser.close()


if __name__ == "__main__":
    main()
