"""Dynamic NTK-aware interpolation (YaRN's paper): scale = request length / trained context.

Design: the method ntk_aware with scale max(1, L / C), where L counts prompt and new tokens of the
request and C is the trained context. The method ntk_frozen has a scale that grows twice as fast.
"""

from lce_core.evidence import EXACT, frequencies
from lce_core.methods._ntk import DynamicNtk
from lce_core.registry import Source


class DynamicNtkAware(DynamicNtk):
    """NTK-aware scaling by max(1, length / trained context)."""


METHOD = DynamicNtkAware
SOURCE = Source(
    paper="arXiv:2309.00071",
    place="section 3.4 and table 5, row NTK-aware, dynamic",
    reference="github.com/jquesnelle/yarn@995db5b575e75230b3384d658f8b944c9662f775",
    differs="one base per request; the reference changes the base during generation",
)
EVIDENCE = (
    frequencies(
        (1.0, 8.659643e-1, 1.0e-1, 1.154782e-2, 1.0e-2, 1.0e-3, 1.154782e-4),
        origin=f"{EXACT}; the base model within its context",
        request=4096,
    ),
    frequencies(
        (1.0, 8.378480e-1, 5.897172e-2, 4.150710e-3, 3.477664e-3, 2.050838e-4, 1.443477e-5),
        origin=f"{EXACT}; static NTK-aware with scale 8 at 32768 tokens",
    ),
)
VERSION = 1
