"""Whiskers over length span the interval, or the range of the seeds where none is known."""

import re
from pathlib import Path

import pytest
from scipy import stats

from catalog.queries import run_query
from dashboards.contents import read_contents
from dashboards.sections.curves import against_length
from tests.support.catalogs.answered_catalog import Answered, written

LENGTHS = (128, 512)


def section(path: Path, seeds: int) -> str:
    """Return the section for `pi`, whose score is (seed + 1) / 4; one length has six prompts."""
    cells = [
        Answered(
            "pi", True, seed, "passkey", "passkey", length,
            [value - 0.1, value + 0.1] * (3 if length == LENGTHS[0] else 1), value,
        )
        for length in LENGTHS
        for seed, value in enumerate((0.25, 0.5)[:seeds])
    ]  # fmt: skip
    return against_length(read_contents(written(path, cells), "s").of("toy_llama"))


def whiskers(shown: str) -> list[tuple[float, ...]]:
    facts = r'data-value="([^"]+)" data-lowest="([^"]+)" data-highest="([^"]+)"'
    return [tuple(map(float, found)) for found in re.findall(facts, shown)]


def test_with_one_seed_whiskers_are_the_interval_over_prompts(tmp_path):
    shown = section(tmp_path / "catalog.duckdb", seeds=1)
    half = stats.t.isf(0.025, 5) * 0.1 / 5**0.5
    assert whiskers(shown)[0] == pytest.approx((0.25, 0.25 - half, 0.25 + half), abs=1e-4)
    assert whiskers(shown)[1] == (0.25, 0.25, 0.25)
    assert shown.count('class="range"') == 1
    assert "95 % interval over prompts" in shown
    assert ">length (tokens), log scale<" in shown


def test_with_several_seeds_whiskers_are_the_interval_within_the_unit(tmp_path):
    path = tmp_path / "catalog.duckdb"
    shown = section(path, seeds=2)
    interval = f"SELECT ci_low, ci_high FROM mean_over_seeds WHERE eval_length = {LENGTHS[0]}"
    assert run_query(path, interval)[1] == [(0.0, 1.0)]
    assert whiskers(shown)[0] == (0.375, 0, 1)
    assert "95 % interval for other seeds and prompts" in shown
    assert 'data-value="0.375" data-low="0.0" data-high="1.0">0.3750 <small>[0, 1' in shown
    tooltip, _ = re.findall(r'data-tooltip="pi at 128: ([^"]+)"|data-tooltip="pi at', shown)
    assert tooltip.startswith("0.3750, ")
    assert "(2 seeds, 0.2500 to 0.5000; 6 documents or prompts per seed)" in tooltip
