"""The generated page of methods says what each one costs; expected values are counted by hand."""

import pytest

from lce.plugins.listing import methods_markdown
from lce_core.methods import METHODS


@pytest.fixture(scope="module")
def costs() -> dict[str, dict[str, str]]:
    lines = [line for line in methods_markdown().splitlines() if line.startswith("| ")]
    columns, *rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    table = [row for row in rows if row[0].startswith("[`")]
    assert {len(row) for row in table} == {len(columns)}
    return {row[0].split("`")[1]: dict(zip(columns, row, strict=True)) for row in table}


def test_every_method_has_a_row(costs):
    assert list(costs) == METHODS.names()


def test_costs_are_those_of_the_keys_that_queries_read(costs):
    length, window = 32768, 4096 + 10  # LM-Infinite sees 4,096 near and 10 first tokens
    seen = sum(min(query + 1, window) for query in range(length))
    full = length * (length + 1) / 2
    assert float(costs["lm_infinite"]["8x"]) == pytest.approx(seen / full, abs=0.006)
    assert float(costs["lm_infinite"]["new token"]) == pytest.approx(window / length, abs=0.006)
    # LongLoRA trains in groups of a quarter of a row, and evaluates with full attention. Half of
    # its heads are shifted by half a group, of which one is cut into two halves.
    assert float(costs["longlora"]["training"]) == pytest.approx((4 / 16 + 3.5 / 16) / 2, abs=0.006)
    assert costs["longlora"]["8x"] == "1.00"
    assert float(costs["landmark"]["cache"]) == pytest.approx(64 / 63, abs=0.006)
    assert {costs["yarn"][name] for name in ("prompt at 2x", "4x", "8x", "cache")} == {"1.00"}
    assert (costs["self_extend"]["training"], costs["yarn"]["export"]) == ("-", "`yarn`")
