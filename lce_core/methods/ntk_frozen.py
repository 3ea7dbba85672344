"""Dynamic NTK without fine-tuning (NTK-Frozen): the base grows with the request.

Design: scale t = s L / C - (s - 1) beyond the trained context C, 1 within it. L counts prompt and
new tokens of the request, so that cached keys and new queries use one base.
"""

from pydantic import Field

from lce_core.evidence import EXACT, frequencies
from lce_core.methods._ntk import DynamicNtk
from lce_core.registry import Source
from lce_core.rope import ContextLengths


class NtkFrozen(DynamicNtk):
    """NTK-aware scaling with a scale that grows with the length of the request."""

    factor: float = Field(default=2.0, ge=1)
    """Increase s of the scale when a request is one trained context longer."""

    def growth(self, lengths: ContextLengths) -> float:
        return self.factor


METHOD = NtkFrozen
SOURCE = Source(
    paper="arXiv:2409.12181",
    place="appendix 9.2 and tables 8, 9 (factor 2 in the code; the text's C'/2C would be 0.5)",
    reference="github.com/Leooyii/LCEG@2ce672dc42b9b5d3e408e8117126c28caeaafcc0",
    differs="one base per request; the reference keeps the base of the longest request so far and"
    " reads cached keys that were rotated by earlier bases",
)
EVIDENCE = tuple(
    frequencies(expected, origin=EXACT, request=request)
    for request, expected in (
        (4096, (1.0, 8.659643e-1, 1.0e-1, 1.154782e-2, 1.0e-2, 1.0e-3, 1.154782e-4)),
        (8192, (1.0, 8.509943e-1, 7.565303e-2, 6.725523e-3, 5.723382e-3, 4.329912e-4, 3.849273e-5)),
        (
            16384,
            (1.0, 8.396257e-1, 6.100591e-2, 4.432596e-3, 3.721721e-3, 2.270470e-4, 1.649689e-5),
        ),
        (
            32768,
            (1.0, 8.295296e-1, 5.027015e-2, 3.046411e-3, 2.527088e-3, 1.270371e-4, 7.698547e-6),
        ),
        (
            65536,
            (1.0, 8.200259e-1, 4.180628e-2, 2.131353e-3, 1.747765e-3, 7.306753e-5, 3.725103e-6),
        ),
    )
)
VERSION = 1
