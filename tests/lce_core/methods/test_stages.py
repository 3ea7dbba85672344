"""Training stages of ABF for Llama-2-7B, by hand."""

import pytest

from lce_core.methods import METHODS
from lce_core.rope import ContextLengths

LENGTHS = ContextLengths(4096, 32768, 32768)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, [(1e6, 8192, 1 / 3), (2e6, 16384, 1 / 3)]),
        ({"shares": [0.5, 0.2, 0.3]}, [(1e6, 8192, 0.5), (2e6, 16384, 0.2)]),
        ({"bases": [3e6, 1e6], "shares": [0.9, 0.1]}, [(3e6, 16384, 0.9)]),
    ],
)
def test_stages_before_the_last_have_their_base_rows_and_share(parameters, expected):
    method = METHODS.parse({"name": "abf_multi_stage", **parameters}, "test")
    stages = method.stages(LENGTHS)
    found = [(stage.method.identity()["base"], stage.context, stage.share) for stage in stages]
    assert found == [(base, context, pytest.approx(share)) for base, context, share in expected]
