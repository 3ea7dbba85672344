"""A finished small study and a Prefect server, for tests that need one but are not about it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flows.temporary_server import temporary_server
from tests.support.studies import (
    TINY_STEPS,
    computed,
    copied_home,
    lce,
    library_text,
    write_study,
)


@pytest.fixture(scope="session")
def finished(made_once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    """The home of the small study, run without disturbance, once in the whole suite."""

    def run(folder: Path) -> None:
        library_text(folder / "text")
        named = ("--data-folder", f"text={folder / 'text'}")
        output = lce(folder / "home", "run", write_study(folder), *named)
        assert computed(output) == TINY_STEPS

    return made_once("tiny", run) / "home"


@pytest.fixture(scope="session")
def text(finished: Path) -> tuple[str, str]:
    """The arguments that say where the small study's text lies."""
    return ("--data-folder", f"text={finished.parent / 'text'}")


@pytest.fixture
def home(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished home, to be disturbed."""
    return copied_home(finished, tmp_path / "home")


@pytest.fixture(scope="session")
def server(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API of a Prefect server that a run may use instead of starting its own."""
    folder = tmp_path_factory.mktemp("server")
    shutil.copytree(finished / "prefect", folder / "prefect")
    with temporary_server(folder) as running:
        yield running.wait_ready()
