"""`lce gc` on a finished study: what the study no longer names goes, and only that is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from lce_core.store.artifacts import Store
from tests.support.studies import TINY, computed, lce, write_study

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.long
def test_a_study_that_was_made_smaller_keeps_what_it_still_is(
    home: Path, text: tuple[str, str], server: dict[str, str], tmp_path: Path
) -> None:
    whole = write_study(tmp_path)
    smaller = write_study(tmp_path, benchmarks=TINY["benchmarks"][:1])
    assert lce(home, "gc") == "freed 0 B: nothing to remove\n"
    lock = tmp_path / "whole.lock"
    lce(home, "lock", whole, *text, "--file", str(lock))
    assert computed(lce(home, "run", smaller, *text, server=server)) == 0
    # The store's copy of the lock still names all of the study.
    assert lce(home, "gc") == "freed 0 B: nothing to remove\n"
    (home / "studies" / TINY["study"] / "study.lock").unlink()
    assert lce(home, "gc", "--lock", str(lock)) == "freed 0 B: nothing to remove\n"
    listed = lce(home, "gc", "--dry-run")
    gone = listed.count("no plan or lock needs it")
    assert gone == len([*Store(home).records()]) - len(Store(home).studies.plans()[0]["steps"]) > 0
    assert lce(home, "gc") == listed.replace("would free", "freed")
    assert computed(lce(home, "run", smaller, *text, server=server)) == 0
    assert computed(lce(home, "run", whole, *text, server=server)) == gone
