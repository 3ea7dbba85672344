"""The made-up study's store, catalog and report, written once for all processes; only read them."""

from pathlib import Path

import pytest

from dashboards.report import write_report
from lce_core.store.artifacts import Store
from tests.support.catalogs.sample_store import STUDY


@pytest.fixture(scope="session")
def store(sample) -> Store:
    return Store(sample)


@pytest.fixture(scope="session")
def catalog(sample) -> Path:
    return sample / "catalog.duckdb"


@pytest.fixture(scope="session")
def report(catalog, made_once) -> Path:
    def write(folder: Path) -> None:
        write_report(catalog, STUDY, folder / "sample.html")

    return made_once("report", write) / "sample.html"
