"""Which browser prints a report: the one that is named, else the first of the usual names.

Strategy: programs of these names in folders of the test's own, and nothing else on the path.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.settings import BROWSER, BROWSERS, browser
from lce_core.errors import SpecError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(BROWSER, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def install(folder: Path, name: str) -> Path:
    path = folder / name
    path.touch(mode=0o755)
    return path


def test_the_first_of_the_usual_names_is_taken(folder: Path) -> None:
    for name in reversed(BROWSERS):
        path = install(folder, name)
        assert browser() == path


def test_a_browser_that_is_named_goes_before_all_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(folder, "chromium")
    own = install(folder, "brave")
    for named in (str(own), "brave", "./brave"):
        monkeypatch.setenv(BROWSER, named)
        assert browser() == own


def test_without_one_the_message_says_what_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "chromium").touch(mode=0o644)  # no program
    with pytest.raises(SpecError, match=r"no browser in \$PATH.*install the package chromium"):
        browser()
    install(folder, "google-chrome")
    monkeypatch.setenv(BROWSER, "/none/chromium")
    with pytest.raises(SpecError, match=f"{BROWSER}=/none/chromium, which is not a program"):
        browser()
