"""Tests of the speed scripts import them by name, as the scripts import their neighbours."""

from collections.abc import Iterator

import pytest

from tests.support.repository import ROOT


@pytest.fixture(scope="module", autouse=True)
def _scripts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "perf"))
        yield
