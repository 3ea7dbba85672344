"""The table of docs/gpus.md has the launches and waits of the present code, within limits."""

from __future__ import annotations

import sys

import pytest

from tests.support.repository import ROOT

pytestmark = pytest.mark.slow
LIMIT = 200
"""Launches of a layer over a text of 32,768 tokens."""
OVER_THE_LIMIT = {"landmark": 5000, "dca": 800}
"""Methods that still start more operations, with limits of their own."""


@pytest.fixture(scope="module")
def launches() -> object:
    sys.path.insert(0, str(ROOT / "perf"))
    try:
        import launches
    finally:
        sys.path.remove(str(ROOT / "perf"))
    return launches


def test_the_table_is_current_and_within_the_limits(launches) -> None:  # type: ignore[no-untyped-def]
    found = launches.table()
    page = (ROOT / "docs" / "gpus.md").read_text(encoding="utf-8")
    written = page.split(launches.START)[1].split(launches.END)[0].strip()
    assert written == found, "run `python perf/launches.py --write`"
    for row in found.splitlines()[2:]:
        methods, forward, *_, waits, _per_pass = row.strip("| ").split(" | ")
        for method in methods.split(", "):
            assert int(forward.replace(",", "")) <= OVER_THE_LIMIT.get(method, LIMIT), method
        assert waits == "0", methods
