"""Dynamic NTK with fine-tuning (NTK-32K of LCEG): constant up to the target, growing beyond.

Design: scale t = s max(C', L) / C - (s - 1) with s = C' / (2 C), for the trained context C, the
target context C' and a request of L tokens. Training rows have C' tokens, so training uses one
base. The name is LCEG's for Llama-2 at 32768 tokens; the formula uses the study's target.

Source: Lu et al. 2024, arXiv:2409.12181, appendix 9.2, after Fu et al. 2024 (arXiv:2402.10171).
"""

from lce_core.evidence import EXACT, PHI2, frequencies
from lce_core.methods._ntk import TargetNtk
from lce_core.registry import Source


class Ntk32k(TargetNtk):
    """NTK-aware scaling that is constant for requests up to the target context."""


METHOD = Ntk32k
SOURCE = Source(
    paper="arXiv:2409.12181",
    place="appendix 9.2 and tables 7, 8",
    reference="github.com/Leooyii/LCEG@2ce672dc42b9b5d3e408e8117126c28caeaafcc0",
    differs="s is not rounded up to an integer (no difference if the target is a multiple of twice"
    " the trained context), and each request has one base",
)
EVIDENCE = (
    frequencies(
        (1.0, 8.208945e-1, 4.252040e-2, 2.202456e-3, 1.807984e-3, 7.687622e-5, 3.982007e-6),
        origin=f"{EXACT}; scale 29 of LCEG table 8",
    ),
    frequencies(
        (1.0, 8.208945e-1, 4.252040e-2, 2.202456e-3, 1.807984e-3, 7.687622e-5, 3.982007e-6),
        origin=f"{EXACT}; scale 29 at 4096 tokens too",
        request=4096,
    ),
    frequencies(
        (1.0, 8.112626e-1, 3.520326e-2, 1.527581e-3, 1.239270e-3, 4.362633e-5, 1.893085e-6),
        origin=f"{EXACT}; scale 61 of LCEG table 8",
        request=65536,
    ),
    frequencies(
        (1.0, 4.08458233e-1),
        origin="transformers 5.23 'dynamic', factor 8, Phi-2 at 32768 tokens",
        pairs=(0, 1),
        geometry=PHI2,
    ),
)
VERSION = 1
