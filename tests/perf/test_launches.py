"""The tables of docs/gpus.md are those of the present code; launches and waits keep limits."""

import importlib

import pytest

from tests.support.repository import ROOT

pytestmark = pytest.mark.slow
LIMIT = 200
"""Launches of a layer in each of the three passes."""
OVER_THE_LIMIT = {"landmark": 1200}
"""Methods that start more operations, with limits of their own: landmark's segments of queries are
bounded by memory."""


def _current(script: str, name: str) -> str:
    """The table of docs/gpus.md, which has to be what the script computes."""
    found: str = importlib.import_module(script).TABLES[name]()
    page = (ROOT / "docs" / "gpus.md").read_text(encoding="utf-8")
    whole = f"<!-- {name}: start -->\n{found}\n<!-- {name}: end -->"
    assert whole in page, f"run `python perf/{script}.py --write`"
    return found


@pytest.mark.parametrize("name", ["memory", "time"])
def test_predictions_are_current(name):
    _current("predictions", name)


def test_training_waits_for_no_method_and_its_table_is_current():
    for row in _current("launches", "training launches").splitlines()[2:]:
        methods, forward, backward, waits = row.strip("| ").split(" | ")
        assert int(forward) <= LIMIT, methods
        assert int(backward) <= LIMIT, methods
        assert waits == "0", methods


def test_launches_are_current_and_within_the_limits():
    found = _current("launches", "launches")
    for row in found.splitlines()[2:]:
        methods, *passes, waits, _per_pass = row.strip("| ").split(" | ")
        for method in methods.split(", "):
            most = OVER_THE_LIMIT.get(method, LIMIT)
            assert all(int(number.replace(",", "")) <= most for number in passes), method
        assert waits == "0", methods
