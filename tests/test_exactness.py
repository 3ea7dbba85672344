"""What docs/exactness.md calls tested is tested: each row names tests, and all of them exist.

Whether a test says what the row claims is for readers; this keeps renamed tests from being lost.
"""

import re

from tests.support.repository import ROOT

TEXT = (ROOT / "docs" / "exactness.md").read_text("utf-8")


def _rows(section: str) -> list[str]:
    part = TEXT.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return [line for line in part.splitlines() if line.startswith("|")][2:]


def test_rows_name_tests_that_exist_unless_something_was_compared_once():
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT))
    assert [
        (file, function)
        for file, function in named
        if f"\ndef {function}(" not in (ROOT / file).read_text("utf-8")
    ] == []
    for section in ("Methods", "Evaluation"):
        assert len(_rows(section)) > 10
        assert [row for row in _rows(section) if "::" not in row] == []
    assert _rows("Compared once")
    assert [row for row in _rows("Compared once") if "tests/" in row] == []
