"""No extension: the base model as it was trained.

Design: changes nothing, and is the control of each study.
"""

from lce_core.evidence import EXACT, frequencies
from lce_core.methods import Method
from lce_core.registry import Source


class NoExtension(Method):
    """The base model's own frequencies and full attention."""

    family = "none"


METHOD = NoExtension
SOURCE = Source(
    paper="arXiv:2104.09864",
    place="RoPE itself; the base rows of LCEG (arXiv:2409.12181), tables 1 to 4",
    reference="github.com/Leooyii/LCEG@2ce672dc42b9b5d3e408e8117126c28caeaafcc0",
)
EVIDENCE = (
    frequencies((1.0, 8.659643e-1, 1.0e-1, 1.154782e-2, 1.0e-2, 1.0e-3, 1.154782e-4), origin=EXACT),
)
VERSION = 1
