"""`lce dashboard` as users have it: refusals, its pages in a browser, and how it ends."""

import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboards.app import __main__ as served
from flows.servers.dashboard import become_dashboard
from lce_core.errors import SpecError
from tests.support.accessibility import faults
from tests.support.catalogs.sample_store import STUDY
from tests.support.ports import listens, unused_port
from tests.support.processes import marked, new_marker, survivors
from tests.support.studies import start, wait_until

PAGES = ("Scores", "Answers", "Method against method", "Papers", "SQL", "Matrix", "Findings")
WIDTHS = (400, 800, 1280)
ATTEMPTS = 60
# The box of a turned title begins up to 3 px before its letters.
_NO_TEXT_IS_CUT = """() => [...document.querySelectorAll("svg.marks")].every(chart => {
    const box = chart.getBoundingClientRect();
    return [...chart.querySelectorAll("text")].every(text => {
        const {left, right, width} = text.getBoundingClientRect();
        return width === 0 || (left >= box.left - 3 && right <= box.right + 1);
    });
})"""


def test_a_port_that_is_taken_is_refused_before_anything_starts(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SpecError, match=str(port)):
            become_dashboard(tmp_path, port, refresh=True)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_catalog_is_refused(tmp_path, capsys):
    file = tmp_path / "catalog.duckdb"
    file.write_text("no database")
    assert served.main(file, 8501) == 2
    assert "got IO Error" in (said := capsys.readouterr().err)
    assert "lce rebuild catalog" in said


@pytest.fixture(scope="module")
def home(sample, tmp_path_factory) -> Path:
    return shutil.copytree(sample, tmp_path_factory.mktemp("shown") / "home")


@pytest.fixture(scope="module")
def dashboard(home) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Its process, link and mark. The last test of this file ends it."""
    marker, port = new_marker(), unused_port()
    process = start(home, "dashboard", "--port", str(port), env=marked(home, marker))
    try:
        assert process.stdout is not None
        link = process.stdout.readline().split()[0]
        assert link.startswith(f"http://127.0.0.1:{port}/")
        wait_until(lambda: listens(port))
        yield process, link, marker
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def link(dashboard) -> str:
    return dashboard[1]


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "widths"), [("light", WIDTHS), ("dark", WIDTHS[-1:])])
def test_every_page_is_drawn_without_complaint_serious_fault_or_a_request_elsewhere(
    link, chrome, scheme, widths
):
    page = chrome.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    requests: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else 0)
    page.goto(link)
    page.get_by_role("heading", name=f"Findings: {STUDY}").wait_for()
    page.get_by_test_id("stDataFrame").locator("canvas").first.wait_for()
    page.get_by_test_id("stSidebarNav").get_by_text("Matrix", exact=True).click()
    page.get_by_test_id("stVegaLiteChart").locator("svg.marks").first.wait_for()
    # Its middle is a field; the chart of the first view is drawn again once it is wide enough.
    asked = page.get_by_text("Click a field to list its cells.")

    def clicked() -> bool:
        page.get_by_test_id("stVegaLiteChart").first.click()
        page.wait_for_timeout(3000)
        return asked.count() == 0

    wait_until(clicked)
    for title in PAGES:
        page.get_by_test_id("stSidebarNav").get_by_text(title, exact=True).click()
        page.get_by_role("heading", name=f"{title}: {STUDY}").wait_for()
        assert page.get_by_test_id("stException").count() == 0
        for width in widths:
            page.set_viewport_size({"width": width, "height": 900})
            wide = page.evaluate(
                "document.documentElement.scrollWidth > document.documentElement.clientWidth"
            )
            assert not wide, f"{title} at {width} px"
            page.wait_for_function(_NO_TEXT_IS_CUT)  # charts follow the width
            # What Streamlit draws again is pale until it fades in; a fault of the page stays.
            for _ in range(ATTEMPTS):
                if not (found := faults(page)):
                    break
                page.wait_for_timeout(1000)
            assert found == [], f"{title} at {width} px"
    assert complaints == []
    url = link.partition("/lce-login")[0]
    known = (url, url.replace("http", "ws"), "data:", "blob:")
    assert [url for url in requests if not url.startswith(known)] == []
    page.close()


@pytest.mark.slow
def test_an_interrupt_ends_it_and_what_keeps_its_catalog_fresh(dashboard):
    process, _, marker = dashboard
    wait_until(lambda: len(survivors(marker)) == 2)
    process.send_signal(signal.SIGINT)
    wait_until(lambda: survivors(marker) == [])
