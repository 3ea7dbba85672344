"""Fixtures that the whole suite makes once: the finished small study, its text, made-up results.

They import what they need inside, because machines load them that cannot run a study.
"""

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


@pytest.fixture(scope="session")
def sample(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """The home of the made-up study, with its catalog; copy it before changing anything."""
    from catalog.build import refresh_catalog
    from tests.support.catalogs.sample_store import sample_store

    def make(folder: Path) -> None:
        refresh_catalog(sample_store(folder))

    return made_once("sample", make)


@pytest.fixture(scope="session")
def small_sample(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """The same with one seed of three."""
    from catalog.build import refresh_catalog
    from tests.support.catalogs.sample_store import sample_store

    def make(folder: Path) -> None:
        refresh_catalog(sample_store(folder, seeds=(2,)))

    return made_once("small-sample", make)
