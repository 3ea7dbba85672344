"""Method 1 of Men et al. 2024: a larger RoPE base with which B_m stays non-negative.

Design: B_m is the paper's measure of how well attention distinguishes a similar token from a random
one at distance m (`lce_core.rope.bound`). rope_theta becomes 5e6 at every length. With this base no
pair turns further than in training, and B_m is non-negative up to 82999 tokens. The counterpart
rope_base_method_2 differs in one point: its B_m turns negative.
"""

from lce_core.evidence import EXACT, frequencies
from lce_core.methods import Base
from lce_core.methods._other_base import OtherBase
from lce_core.registry import Source


class BoundKept(OtherBase):
    """A RoPE base large enough that B_m stays non-negative."""

    base: Base = 5e6
    """RoPE base at every length."""


METHOD = BoundKept
SOURCE = Source(
    paper="arXiv:2405.14591",
    place="section 5.5 and table 4, method 1",
    reference="own",
)
EVIDENCE = (
    frequencies(
        (1.0, 7.858300e-1, 2.114743e-2, 5.690971e-4, 4.472136e-4, 9.457416e-6, 2.545080e-7),
        origin=f"{EXACT}; base 5e6",
    ),
)
VERSION = 1
