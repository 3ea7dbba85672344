"""The first table has every best method beyond the trained context, its group and the next method.

Two of the planted methods are names of one computation.
"""

import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from catalog.queries import open_catalog, run_query
from dashboards.claims import claims
from dashboards.contents import Contents, read_contents
from dashboards.families import Variant, duplicates
from dashboards.sections import cost, leaders, tasks
from lce_core import formats
from tests.support.catalogs.answered_catalog import BASE_MODEL, Answered, written

RIGHT = {
    "none": {128: 40, 256: 20, 512: 2},
    "pi": {128: 30, 256: 38, 512: 30},
    "ntk_32k": {128: 40, 256: 40, 512: 40},
    "ntk_64k": {128: 40, 256: 40, 512: 40},
    "yarn": {128: 40, 256: 40, 512: 40},
}
"""Correct answers of 40 prompts, by method and length. The last three are equal here."""
LOSS = {"none": 1.0, "pi": 0.7, "ntk_32k": 0.4, "ntk_64k": 0.4, "yarn": 0.41}
"""Mean loss of 40 texts, by method: only two methods are equal here."""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory) -> Path:
    cells = [
        Answered(
            method, True, 0, benchmark, "single", length, [1.0] * right + [0.0] * (40 - right),
            right / 40,
        )
        for benchmark in ("passkey", "needle")
        for method, by_length in RIGHT.items()
        for length, right in by_length.items()
    ]  # fmt: skip
    noise = np.random.default_rng(0).normal(0.0, 0.002, (len(LOSS), 40))
    for (method, loss), own in zip(LOSS.items(), noise, strict=True):
        nll = loss + (0.0 if method.startswith("ntk") else own)
        scores = [float(one) for one in np.broadcast_to(nll, 40)]
        cells.append(
            Answered(
                method, True, 0, "perplexity", "code", 512, scores,
                float(np.exp(np.mean(nll))), [f"text {number}" for number in range(40)],
                unit="perplexity",
            )
        )  # fmt: skip
    return written(tmp_path_factory.mktemp("led") / "catalog.duckdb", cells)


def contents_of(catalog: Path) -> Contents:
    return read_contents(catalog, "s").of(BASE_MODEL)


def shown(catalog: Path) -> list[list[str]]:
    """Return the texts of the table's cells by row."""
    with open_catalog(catalog) as connection:
        section = leaders.section(contents_of(catalog), claims(connection, "s"))
    body = section.partition("<tbody>")[2].partition("</tbody>")[0]
    return [
        [
            unescape(re.sub("<[^>]+>", "", cell.replace("<br>", " "))).strip()
            for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)
        ]
        for row in body.split("</tr>")[:-1]
    ]


def test_each_length_beyond_the_trained_context_has_a_row_per_benchmark(catalog):
    assert [row[:2] for row in shown(catalog)] == [
        ["256 (2x)", "needle"],
        ["256 (2x)", "passkey"],
        ["512 (4x)", "perplexity"],
        ["512 (4x)", "needle"],
        ["512 (4x)", "passkey"],
    ]


def test_a_row_names_the_best_group_the_next_method_and_its_gap(catalog):
    def compared(benchmark: str, length: int, other: str) -> dict[str, Any]:
        columns, rows = run_query(
            catalog,
            "FROM paired_difference WHERE method = 'ntk_32k' AND"
            f" benchmark = '{benchmark}' AND eval_length = {length} AND other_method = '{other}'",
        )
        (row,) = rows
        return dict(zip(columns, row, strict=True))

    rows = {(row[1], int(row[0].split()[0])): row[2:] for row in shown(catalog)}
    score, best, alike, detectable, after, gap, samples = rows["passkey", 256]
    assert (score, best, alike) == ("1.000", "ntk_32k = ntk_64k, yarn", "pi")
    assert compared("passkey", 256, "pi")["verdict"] == "no difference found"
    assert detectable == formats.rounded(compared("passkey", 256, "pi")["smallest_detectable"])
    assert (after, samples) == ("none", "40")
    base = compared("passkey", 256, "none")
    assert base["verdict"] == "better"
    interval = formats.estimate(base["difference"], base["ci_low"], base["ci_high"])
    assert gap == f"{interval} {formats.p_value(base['p_adjusted'])}, exploratory"
    # A lower loss is better; the gap is positive all the same.
    _, best, alike, _, after, gap, _ = rows["perplexity", 512]
    assert (best, alike, after) == ("ntk_32k = ntk_64k", "", "yarn")
    other = compared("perplexity", 512, "yarn")
    interval = formats.estimate(-other["difference"], -other["ci_high"], -other["ci_low"])
    assert gap == f"{interval} {formats.p_value(other['p_adjusted'])}, exploratory"


def test_the_first_sentence_says_where_one_method_is_better_than_all_others(catalog):
    contents = contents_of(catalog)
    with open_catalog(catalog) as connection:
        found = claims(connection, "s")
    alone = "<code>ntk_32k</code> = <code>ntk_64k</code> on perplexity at 512 tokens"
    assert leaders.section(contents, found).partition(".")[0].endswith(alone)
    others = [one for one in found if one.benchmark == "passkey"]
    assert "<code>" not in leaders.section(contents, others).partition(".")[0]


def test_only_methods_with_equal_losses_are_the_same_computation(catalog):
    contents = contents_of(catalog)
    assert duplicates(contents) == {Variant("ntk_64k", True): Variant("ntk_32k", True)}
    marked = '<code>ntk_64k</code> <span class="same">= <code>ntk_32k</code></span>'
    for section in (tasks.section(contents), cost.section(contents)):
        assert marked in section


def test_more_names_than_a_cell_holds_are_collapsed():
    several = [Variant(f"m{number}", True) for number in range(5)]
    assert leaders.names(several[:3], {}) == "<code>m0</code>, <code>m1</code>, <code>m2</code>"
    assert "2 more</summary> <code>m3</code>, <code>m4</code>" in leaders.names(several, {})
    # Names of one computation count as often as in the sentences of claims.
    same = {several[4]: several[3]}
    assert "2 more</summary> <code>m3</code> = <code>m4</code>" in leaders.names(several, same)


def test_without_a_comparison_there_is_no_section(tmp_path):
    alone = [Answered("none", True, 0, "passkey", "single", 512, [1.0, 0.0], 0.5)]
    catalog = written(tmp_path / "catalog.duckdb", alone)
    assert leaders.section(contents_of(catalog), []) == ""
