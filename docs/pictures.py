"""Take the screenshots of a report for the documentation, in an installed Chromium.

    python docs/pictures.py CATALOG STUDY [--mlflow]

writes docs/images/STUDY-WIDTH.png for three widths, and the widest also in dark mode. With --mlflow
it also writes docs/images/STUDY-mlflow.png, if `lce up` is running for the catalog's home.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from catalog.mlflow_pages import pages_of
from dashboards.__main__ import WRITERS
from lce_core.access import login_link, server_secret

IMAGES = Path(__file__).parent / "images"
SIZES = {400: 1500, 800: 1500, 1600: 1180}
"""Width and height of the screenshots in pixels. The heights show the first heat map as a whole."""


def small(path: Path) -> None:
    """Reduce a PNG file to 256 colours, which halves its size."""
    with Image.open(path) as image:
        few = image.convert("RGB").quantize(256, kmeans=2, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


def of_mlflow(browser: Browser, link: str, path: Path) -> None:
    """Save a screenshot of MLflow's charts without the side panels."""
    page = browser.new_page(viewport={"width": 1600, "height": 1000})
    page.goto(link)
    drawn = ".js-plotly-plot .scatterlayer path.js-line"
    # A line of a single point has no size, so waiting until it is visible would never end.
    page.wait_for_selector(drawn, timeout=120_000, state="attached")
    if (close := page.get_by_role("button", name="Close")).count():
        close.last.click()
    page.wait_for_timeout(10_000)  # until all visible charts are drawn
    page.screenshot(path=path)
    page.close()
    small(path)
    print(path)


def main() -> None:
    catalog, study = Path(sys.argv[1]), sys.argv[2]
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_of = WRITERS["html"](catalog, study, Path(folder) / "report.html")
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for width, height in SIZES.items():
            for scheme in ("light", "dark")[: 1 + (width == max(SIZES))]:
                size = {"width": width, "height": height}
                page = browser.new_page(viewport=size, color_scheme=scheme)
                page.goto(page_of.as_uri())
                name = f"{study}-{width}{'-dark' if scheme == 'dark' else ''}.png"
                page.screenshot(path=IMAGES / name)
                page.close()
                small(IMAGES / name)
                print(IMAGES / name)
        pages = pages_of(catalog.absolute().parent, study)
        if pages and "--mlflow" in sys.argv:
            secret = server_secret(catalog.absolute().parent, "mlflow")
            link = login_link(pages.server, secret, pages.methods.removeprefix(pages.server))
            of_mlflow(browser, link, IMAGES / f"{study}-mlflow.png")
        browser.close()


if __name__ == "__main__":
    main()
