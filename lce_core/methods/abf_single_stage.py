"""Adjusted base frequency in one stage: a larger RoPE base, trained directly at the target."""

from lce_core.evidence import EXACT, frequencies
from lce_core.methods import Base
from lce_core.methods._other_base import OtherBase
from lce_core.registry import Source


class AdjustedBase(OtherBase):
    """A larger RoPE base at every length."""

    base: Base = 5e6
    """RoPE base at every length."""


METHOD = AdjustedBase
SOURCE = Source(
    paper="arXiv:2412.07171",
    place="section 4.1, ABF single-stage",
    reference="own",
)
EVIDENCE = (
    frequencies(
        (1.0, 7.858300e-1, 2.114743e-2, 5.690971e-4, 4.472136e-4, 9.457416e-6, 2.545080e-7),
        origin=f"{EXACT}; base 5e6",
    ),
    frequencies(
        (1.0, 8.058422e-1, 3.162278e-2, 1.240938e-3, 1.0e-3, 3.162278e-5, 1.240938e-6),
        origin=f"{EXACT}; base 1e6, of the first stage of multi-stage ABF",
        base=1e6,
    ),
    frequencies(
        (1.0, 7.971617e-1, 2.659148e-2, 8.870306e-4, 7.071068e-4, 1.880302e-5, 6.272253e-7),
        origin=f"{EXACT}; base 2e6, of the second stage of multi-stage ABF",
        base=2e6,
    ),
)
VERSION = 1
