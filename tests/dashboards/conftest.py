"""The made-up study's store, catalog and report, written once for all processes; only read them."""

from pathlib import Path

import pytest

from catalog.build import build_catalog
from dashboards.report import write_report
from lce_core.store.artifacts import Store
from tests.support.catalogs.sample_store import STUDY, sample_store


def _fill(folder: Path) -> None:
    catalog = build_catalog(sample_store(folder), folder / "catalog.duckdb")
    write_report(catalog, STUDY, folder / "sample.html")


@pytest.fixture(scope="session")
def sample(made_once) -> Path:
    return made_once("sample", _fill)


@pytest.fixture(scope="session")
def store(sample) -> Store:
    return Store(sample / "sample-store")


@pytest.fixture(scope="session")
def catalog(sample) -> Path:
    return sample / "catalog.duckdb"


@pytest.fixture(scope="session")
def report(sample) -> Path:
    return sample / "sample.html"
