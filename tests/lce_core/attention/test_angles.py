"""Cosines of far positions against extended precision; float32 angles miss them by 8e-3."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from lce_core.attention.rotary import RequestRotary
from lce_core.attention.rotation import Rotation, check_heads
from lce_core.errors import SpecError
from lce_core.rope import RopeTable

LENGTH, PAIRS = 131_072, 8
LAST = slice(LENGTH - 1000, LENGTH)
TABLE = RopeTable(1e4 ** (-np.arange(PAIRS) / PAIRS))


def angles() -> NDArray[np.longdouble]:
    """Angles (1000, pairs) of the last positions, to 18 digits."""
    places = np.arange(LENGTH, dtype=np.longdouble)[LAST]
    return places[:, None] * TABLE.inv_freq.astype(np.longdouble)


def test_kernels_rotate_far_positions_by_exact_angles():
    pairs = torch.zeros(1, 1, 1000, 2, PAIRS)
    pairs[..., 0, :] = 1
    turned = Rotation(TABLE, pairs)(pairs.flatten(-2), torch.arange(LENGTH)[LAST])
    cos, sin = turned[0, 0].double().numpy().reshape(1000, 2, PAIRS).transpose(1, 0, 2)
    np.testing.assert_allclose(cos, np.cos(angles()), rtol=0, atol=1e-7)
    np.testing.assert_allclose(sin, np.sin(angles()), rtol=0, atol=1e-7)


def test_the_models_rotary_module_gives_exact_cosines_of_far_positions():
    rotary = RequestRotary(2 * PAIRS, identity=False)
    rotary.begin(TABLE, LENGTH)
    cos, sin = rotary(torch.zeros(1), torch.arange(LENGTH)[None, LAST])
    for half in (slice(PAIRS), slice(PAIRS, None)):
        np.testing.assert_allclose(cos[0, :, half].double(), np.cos(angles()), rtol=0, atol=1e-7)
        np.testing.assert_allclose(sin[0, :, half].double(), np.sin(angles()), rtol=0, atol=1e-7)


def per_head(bases: str) -> RopeTable:
    """A table whose heads have the same base where the letters are the same."""
    return RopeTable(np.stack([TABLE.inv_freq / ord(base) for base in bases]))


@pytest.mark.parametrize(
    ("bases", "kv_heads"), [("aabbccdd", 2), ("aabbcc", 2), ("aaabbb", 3), ("abab", 2), ("ab", 1)]
)
def test_bases_that_change_within_a_key_value_head_are_refused(bases, kv_heads):
    with pytest.raises(SpecError, match="different bases within a key-value head"):
        check_heads(per_head(bases), len(bases), kv_heads)
    with pytest.raises(SpecError, match="one row for each"):
        check_heads(per_head(bases[1:]), len(bases), kv_heads)
