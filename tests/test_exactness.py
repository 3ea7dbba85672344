"""What docs/exactness.md calls tested is tested: each row names tests, and all of them exist.

Whether a test says what the row claims is for readers; this keeps renamed tests from being lost.
"""

from __future__ import annotations

import re

import pytest

from tests.support.repository import ROOT

TEXT = (ROOT / "docs" / "exactness.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))


def _rows(section: str) -> list[str]:
    part = TEXT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return [line for line in part.splitlines() if line.startswith("|")][2:]


@pytest.mark.parametrize(("file", "function"), NAMED, ids=[name for _, name in NAMED])
def test_a_test_named_in_the_document_exists(file: str, function: str) -> None:
    assert f"\ndef {function}(" in (ROOT / file).read_text("utf-8")


@pytest.mark.parametrize("section", ["Methods", "Evaluation"])
def test_every_row_about_what_is_tested_names_a_test(section: str) -> None:
    rows = _rows(section)
    assert len(rows) > 10
    assert [row for row in rows if "::" not in row] == []


def test_what_was_compared_once_names_no_test() -> None:
    rows = _rows("Compared once")
    assert rows
    assert [row for row in rows if "tests/" in row] == []
