"""The section has every claim about a best method beyond the trained context, and no other.

Strategy: plant answers at three lengths, one of which is the trained context.
"""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from catalog.queries import open_catalog
from dashboards.claims import claims
from dashboards.contents import read_contents
from dashboards.report import report_page
from dashboards.sections import leaders
from tests.support.catalogs.answered_catalog import Answered, written

RIGHT = {"none": {128: 40, 256: 20, 512: 2}, "pi": {128: 30, 256: 38, 512: 30}}
"""Correct answers of 40 prompts, by method and length."""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cells = [
        Answered(
            method, True, 0, benchmark, "single", length, [1.0] * right + [0.0] * (40 - right),
            right / 40,
        )
        for benchmark in ("passkey", "needle")
        for method, by_length in RIGHT.items()
        for length, right in by_length.items()
    ]  # fmt: skip
    return written(tmp_path_factory.mktemp("led") / "catalog.duckdb", cells)


def test_each_length_beyond_the_trained_context_has_the_best_methods(
    catalog: Path,
) -> None:
    with open_catalog(catalog) as connection:
        found = claims(connection, "s")
    contents = read_contents(catalog, "s")
    shown = leaders.section(contents.of(contents.studies[0]["base_model"]), found)
    places = re.findall(r"<dt>(.*?)</dt><dd><ul>(.*?)</ul></dd>", shown)
    assert [place for place, _ in places] == [
        "At 256 tokens (2 times the trained context)",
        "At 512 tokens (4 times the trained context)",
    ]
    for length, (_, items) in zip((256, 512), places, strict=True):
        sentences = [unescape(one) for one in re.findall(r"<li>(.*?)</li>", items)]
        best = [one for one in found if one.topic == "best" and one.eval_length == length]
        # The heading states the length; the sentences below it do not repeat it.
        where = f"at {length} tokens ({length // 128} times the trained context), "
        assert [f"{where}{sentence}" for sentence in sentences] == [f"{one.text}." for one in best]
        assert len(sentences) == 2
        assert all(one.startswith("pi has the highest accuracy ") for one in sentences)
    assert 'id="leaders"' in report_page(catalog, "s")


def test_without_a_comparison_there_is_no_section(tmp_path: Path) -> None:
    alone = [Answered("none", True, 0, "passkey", "single", 512, [1.0, 0.0], 0.5)]
    catalog = written(tmp_path / "catalog.duckdb", alone)
    contents = read_contents(catalog, "s")
    assert leaders.section(contents.of(contents.studies[0]["base_model"]), []) == ""
    assert 'id="leaders"' not in report_page(catalog, "s")
