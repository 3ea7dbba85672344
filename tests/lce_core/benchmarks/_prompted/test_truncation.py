"""The middle cut at its edge: what just fits is whole, one token more loses the middle."""

from typing import Any

import pytest

from lce_core.benchmarks import cut_middle, cut_middle_to_fit
from tests.support.cells import TOY, benchmark, request

BYTES = TOY.tokenizer(None)
TEXT = "abcdefghi"


@pytest.fixture(scope="module")
def asked() -> Any:
    return request(benchmark("passkey", profile="tiny"), 128)


@pytest.mark.parametrize("cut", [cut_middle, cut_middle_to_fit])
@pytest.mark.parametrize(
    ("most", "kept"), [(10, TEXT), (9, TEXT), (8, "abcdfghi"), (7, "abcghi"), (2, "ai")]
)
def test_a_text_that_just_fits_is_whole(cut, most, kept, asked):
    assert BYTES.decode(cut(asked, TEXT, most)) == kept
