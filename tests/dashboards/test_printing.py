"""The PDF has the content of the page, and a failing browser changes no file."""

import contextlib
import re
import shutil
from pathlib import Path
from typing import Any

import psutil
import pytest

from catalog.queries import open_catalog, run_query
from dashboards.claims import counted, expectations
from dashboards.report import print_page
from lce_core import formats
from lce_core.errors import ServiceError, SpecError
from tests.support.catalogs.sample_store import STUDY
from tests.support.studies import lce, wait_until

A4 = (595.3, 841.9)
"""Size of a sheet in points."""


def program(folder: Path, *lines: str) -> Path:
    """Write a shell script that replaces the browser; $pdf is the path to print to."""
    path = folder / "browser"
    find = "for one; do case $one in --print-to-pdf=*) pdf=${one#*=};; esac; done"
    path.write_text("\n".join(["#!/bin/sh", find, *lines]) + "\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("lines", "got"),
    [
        (["echo cannot open display >&2", "exit 3"], "exit code 3"),
        (['printf "%%PDF-1.4 and no end" > $pdf'], "a browser that wrote no complete PDF"),
        (['printf "%%PDF-1.4 %%%%EOF" > $pdf', "exit 1"], "exit code 1"),
        (["kill -SEGV $$"], "exit code -11"),
    ],
)
def test_a_failed_browser_keeps_the_earlier_pdf(tmp_path, lines, got):
    out = tmp_path / "reports" / "toy.pdf"
    out.parent.mkdir()
    out.write_bytes(b"earlier")
    with pytest.raises(ServiceError) as raised:
        print_page("<p>page", out, program(tmp_path, *lines))
    assert raised.value.got == got
    assert raised.value.details == ("cannot open display" if "3" in got else "")
    assert out.read_bytes() == b"earlier"
    assert list(out.parent.iterdir()) == [out]


def test_the_error_names_a_program_that_does_not_start(tmp_path):
    browser = tmp_path / "browser"
    browser.write_bytes(b"\x7fELF of another machine")
    browser.chmod(0o755)
    with pytest.raises(ServiceError, match=f"{browser}: got a program that does not start"):
        print_page("<p>page", tmp_path / "toy.pdf", browser)
    assert list(tmp_path.iterdir()) == [browser]


def test_a_browser_that_hangs_is_killed_with_its_child_processes(tmp_path):
    browser = program(tmp_path, f"sleep 600 & echo $! > {tmp_path / 'child'}", "wait")
    # Slow machines need a while to start the program, whose child the test looks for.
    with pytest.raises(ServiceError, match=r"got a browser that was still running after 5 s"):
        print_page("<p>page", tmp_path / "out" / "toy.pdf", browser, seconds=5)
    child = int((tmp_path / "child").read_text())
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(child)
        wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE, 100)
    assert list((tmp_path / "out").iterdir()) == []


def test_an_unwritable_path_is_an_error_before_the_browser_starts(tmp_path):
    (tmp_path / "file").touch()
    browser = program(tmp_path, f"touch {tmp_path / 'started'}")
    with pytest.raises(SpecError, match="choose another"):
        print_page("<p>page", tmp_path / "file" / "toy.pdf", browser)
    assert not (tmp_path / "started").exists()


@pytest.fixture(scope="module")
def home(sample, tmp_path_factory) -> Path:
    return shutil.copytree(sample, tmp_path_factory.mktemp("printed") / "home")


@pytest.mark.slow
@pytest.mark.browser
def test_the_pdf_has_the_pages_content_on_a4(home):
    import pypdfium2

    out = home / "reports" / f"{STUDY}.pdf"
    assert lce(home, "report", STUDY, "--format", "pdf").strip() == str(out)
    assert list(out.parent.iterdir()) == [out]
    with pypdfium2.PdfDocument(out) as document:
        assert document.get_metadata_dict()["Title"] == STUDY
        titles = [item.get_title() for item in document.get_toc()]
        pages = list(document)
        texts = [words(page.get_textpage().get_text_range()) for page in pages]
        for page in pages:
            assert page.get_size() == pytest.approx(A4, abs=1)
            assert is_paper(page)
    catalog = home / "catalog.duckdb"
    with open_catalog(catalog) as connection:
        outcome = counted(expectations(connection, STUDY))
    for sentence in ("retrieval & perplexity <beyond> 4x.", outcome):
        assert words(sentence) in texts[0]
    assert titles[0] == STUDY
    assert {"At a glance", "Score against length", "Task by task", "Origin"} <= set(titles)
    assert all(f"{n} / {len(texts)}" in text for n, text in enumerate(texts, 1))
    _, rows = run_query(catalog, "SELECT value FROM score_by_length WHERE value IS NOT NULL")
    assert {formats.score(value) for (value,) in rows} <= set(" ".join(texts).split())


def words(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def is_paper(page: Any) -> bool:
    """Return True if the margins are white and the area between them is not empty."""
    pixels = page.render(scale=0.5, grayscale=True).to_numpy().squeeze()
    inner = pixels[20:-20, 20:-20]
    edges = (pixels[:12], pixels[-6:], pixels[:, :12], pixels[:, -12:])
    return all((edge > 250).all() for edge in edges) and bool((inner < 128).any())
