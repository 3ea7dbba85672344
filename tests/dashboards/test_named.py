"""The methods that the hypothesis or an expectation names are compared with each other.

The hypothesis names two of five methods, an expectation two others.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from catalog.queries import run_query
from dashboards.contents import Contents, read_contents
from dashboards.figure import names_as_code
from dashboards.sections import comparisons
from tests.support.catalogs.answered_catalog import BASE_MODEL, Answered, written

RIGHT = {"none": 4, "pi": 20, "self_extend": 36, "ntk_32k": 30, "yarn": 38}
HYPOTHESIS = "Self-Extend is better than PI; none of this is known."


def expected(**changes: Any) -> dict[str, Any]:
    return {
        "entry": 0, "text": "YaRN helps.", "base_model": BASE_MODEL, "method": "yarn",
        "frozen": True, "expected": "better", "other_method": "none", "other_frozen": True,
        "benchmark": "passkey", "eval_length": 512, **changes,
    }  # fmt: skip


def catalog_of(folder: Path, *expects: dict[str, Any]) -> Path:
    cells = [
        Answered(method, True, 0, benchmark, "single", length,
                 [1.0] * right + [0.0] * (40 - right), right / 40)
        for benchmark in ("needle", "passkey")
        for method, right in RIGHT.items()
        for length in (256, 512)
    ]  # fmt: skip
    return written(folder / "catalog.duckdb", cells, hypothesis=HYPOTHESIS, expects=expects)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory) -> Path:
    return catalog_of(tmp_path_factory.mktemp("named"), expected())


def contents_of(catalog: Path) -> Contents:
    return read_contents(catalog, "s").of(BASE_MODEL)


def test_every_named_method_is_compared_with_every_other(catalog):
    section = comparisons.named_methods(contents_of(catalog))
    # An expectation names passkey only.
    assert re.findall(r"<summary><b>(.*?)</b>", section) == ["passkey, 512 tokens"]
    order = ["yarn", "self_extend", "pi", "none"]
    assert re.findall(r'<tr data-method="(\w+)"', section) == order
    _, rows = run_query(
        catalog,
        "SELECT method, other_method, difference, verdict FROM paired_difference"
        " WHERE benchmark = 'passkey' AND eval_length = 512 AND method <> 'ntk_32k'"
        " AND other_method <> 'ntk_32k'",
    )
    found = {}
    for method, body in re.findall(r'<tr data-method="(\w+)"[^>]*>(.*?)</tr>', section):
        cells = re.findall(r"<td([^>]*)>(.*?)</td>", body)[1:]
        for other, (facts, text) in zip(order, cells, strict=True):
            if value := re.search(r'data-value="([^"]+)"', facts):
                mark = re.search(r'aria-label="(\w+)"', text)
                found[method, other] = (float(value[1]), mark[1] if mark else None)
    assert found == {
        (one, other): (difference, verdict if verdict in ("better", "worse") else None)
        for one, other, difference, verdict in rows
    }
    assert len(found) == 12


def test_without_expectations_the_hypothesis_names_the_methods(tmp_path):
    contents = contents_of(catalog_of(tmp_path))
    assert [one.label for one in comparisons.named(contents)] == ["pi", "self_extend"]
    assert comparisons.named_methods(contents).count("<summary>") == 2


def test_sentences_have_names_of_methods_in_code_type(catalog):
    variants = comparisons.named(contents_of(catalog))
    shown = names_as_code("yarn & self_extend beat pi; pip and the-pi do not", variants)
    assert shown == (
        "<code>yarn</code> &amp; <code>self_extend</code> beat <code>pi</code>;"
        " pip and the-pi do not"
    )
