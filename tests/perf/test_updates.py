"""Updates of bf16 states are one kernel each and move the bytes that docs/gpus.md states."""

from collections.abc import Iterator

import pytest

from tests.support.compiling import fresh_compiler, needs_compiler
from tests.support.repository import ROOT

pytestmark = [needs_compiler, pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture
def updates() -> Iterator[object]:
    with fresh_compiler():
        import updates

        yield updates


@pytest.mark.parametrize(
    ("name", "make", "num_bytes"), [("AdamW", "adamw", 14), ("sum of gradients", "gradient_sum", 6)]
)
def test_an_update_reads_and_writes_each_tensor_once(updates, name, make, num_bytes):
    assert updates.traffic(getattr(updates, make)(compiled=True)) == (1, num_bytes)
    page = (ROOT / "docs" / "gpus.md").read_text(encoding="utf-8")
    assert f"| {name} | 1 | {num_bytes} |" in page
