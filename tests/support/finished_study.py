"""Fixtures that the whole suite makes once: the small study, finished, and its text.

They are loaded with every test, on machines too that have nothing to run a study with: so what they
need is imported where they need it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def migrated(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """A home that holds new databases of Prefect and MLflow, and nothing else; for `new_home`.

    Creating them takes ten seconds and three, most of them in migrations.
    """
    from flows.servers.temporary_server import temporary_server
    from tasks.tracking import initialise

    def migrate(folder: Path) -> None:
        initialise(folder)
        with temporary_server(folder) as server:
            server.wait_ready()

    return made_once("migrated", migrate)


@pytest.fixture(scope="session")
def finished(made_once: Callable[[str, Callable[[Path], None]], Path], migrated: Path) -> Path:
    """The home of the small study, run without disturbance, once in the whole suite."""
    from tests.support.studies import TINY_STEPS, computed, lce, library_text, new_home, write_study

    def run(folder: Path) -> None:
        library_text(folder / "text")
        named = ("--data-folder", f"text={folder / 'text'}")
        home = new_home(migrated, folder / "home")
        assert computed(lce(home, "run", write_study(folder), *named)) == TINY_STEPS

    return made_once("tiny", run) / "home"


@pytest.fixture(scope="session")
def text(finished: Path) -> tuple[str, str]:
    """The arguments that say where the small study's text lies."""
    return ("--data-folder", f"text={finished.parent / 'text'}")


@pytest.fixture(scope="session")
def library(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """A folder with half a megabyte of the standard library as text files."""
    from tests.support.studies import library_text

    return made_once("library", lambda folder: library_text(folder / "text")) / "text"
