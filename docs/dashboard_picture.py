"""Take the screenshot of the dashboard for the documentation, in an installed Chromium.

    python docs/dashboard_picture.py CATALOG STUDY

writes docs/images/dashboard-STUDY.png, the page of answers.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from pictures import IMAGES, small
from playwright.sync_api import sync_playwright

PORT = 8517
SIZE = {"width": 1280, "height": 1060}


def main() -> None:
    catalog, study = sys.argv[1:]
    command = [sys.executable, "-m", "dashboards.app", "--port", str(PORT), "--catalog", catalog]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
        sync_playwright() as playwright,
    ):
        assert server.stdout is not None
        link = server.stdout.readline().split()[0]
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(link)
        page.get_by_test_id("stAppViewContainer").wait_for()
        page.goto(f"http://127.0.0.1:{PORT}/answers?study={study}&method=yarn")
        page.get_by_test_id("stDataFrame").wait_for()
        page.wait_for_timeout(2000)  # until the charts' animations end
        file = IMAGES / f"dashboard-{study}.png"
        page.screenshot(path=file)
        browser.close()
        server.terminate()
    small(file)
    print(file)


if __name__ == "__main__":
    main()
