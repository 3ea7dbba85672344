"""The tables of docs/gpus.md have the launches and waits of the present code, within limits."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.support.repository import ROOT

pytestmark = pytest.mark.slow
LIMIT = 200
"""Launches of a layer in each of the three passes."""
OVER_THE_LIMIT = {"landmark": 1200}
"""Methods that start more operations, with limits of their own: landmark's segments of queries are
bounded by memory."""


@pytest.fixture(scope="module")
def launches() -> Any:
    sys.path.insert(0, str(ROOT / "perf"))
    try:
        import launches
    finally:
        sys.path.remove(str(ROOT / "perf"))
    return launches


def current(launches: Any, name: str) -> str:
    """Count again, and compare with the table of the page."""
    found: str = launches.TABLES[name]()
    start, end = launches.marks(name)
    page = (ROOT / "docs" / "gpus.md").read_text(encoding="utf-8")
    written = page.split(start)[1].split(end)[0].strip()
    assert written == found, "run `python perf/launches.py --write`"
    return found


def test_training_waits_for_no_method_and_its_table_is_current(launches: Any) -> None:
    for row in current(launches, "training launches").splitlines()[2:]:
        methods, forward, backward, waits = row.strip("| ").split(" | ")
        assert int(forward) <= LIMIT, methods
        assert int(backward) <= LIMIT, methods
        assert waits == "0", methods


def test_the_table_is_current_and_within_the_limits(launches: Any) -> None:
    found = current(launches, "launches")
    for row in found.splitlines()[2:]:
        methods, *passes, waits, _per_pass = row.strip("| ").split(" | ")
        for method in methods.split(", "):
            most = OVER_THE_LIMIT.get(method, LIMIT)
            assert all(int(number.replace(",", "")) <= most for number in passes), method
        assert waits == "0", methods
