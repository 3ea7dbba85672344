"""A smaller RoPE base: low perplexity at long lengths, but little use of distant tokens.

Design: rope_theta becomes 500, less than the smallest base that the paper's bound requires for a
long context (`lce_core.rope.bound`). The method is a control: it shows that perplexity alone does
not measure whether a model uses distant tokens.
"""

from lce_core.evidence import EXACT, frequencies
from lce_core.methods import Base
from lce_core.methods._other_base import OtherBase
from lce_core.registry import Source


class SmallBase(OtherBase):
    """A RoPE base that is too small for long contexts."""

    base: Base = 500.0
    """RoPE base at every length."""


METHOD = SmallBase
SOURCE = Source(
    paper="arXiv:2405.14591",
    place="sections 3 and 5.4: base 500, fine-tuned at 32768 tokens",
    reference="own",
)
EVIDENCE = (
    frequencies(
        (1.0, 9.074623e-1, 2.114743e-1, 4.928178e-2, 4.472136e-2, 9.457416e-3, 2.203948e-3),
        origin=f"{EXACT}; base 500",
    ),
)
VERSION = 1
