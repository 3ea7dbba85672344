"""Dynamic NTK with fine-tuning (NTK-64K of LCEG): ntk_32k for a target of 65536 tokens.

Design: the formula of ntk_32k, which gives scale 121 for Llama-2 at 65536 tokens, like LCEG's code.
LCEG's tables print 57, the formula's value at half the target. `scale_form` selects one of the two.

Source: Lu et al. 2024, arXiv:2409.12181, appendix 9.2, after Fu et al. 2024 (arXiv:2402.10171).
"""

from typing import Literal

from lce_core.evidence import EXACT, PHI2, frequencies
from lce_core.methods._ntk import TargetNtk, dynamic_scale
from lce_core.registry import Source
from lce_core.rope import ContextLengths, RopeGeometry


class Ntk64k(TargetNtk):
    """NTK-aware scaling with LCEG's formula (scale 121) or with its printed scale (57)."""

    scale_form: Literal["formula", "printed"] = "formula"
    """"formula" uses the scale of the formula (121 for Llama-2 at 65536 tokens); "printed" uses the
    formula's value at half the target, which LCEG's tables print (57)."""

    def length_dependent(self, geometry: RopeGeometry, lengths: ContextLengths) -> bool:
        return self.scale_form == "formula" and super().length_dependent(geometry, lengths)

    def scale_at(self, lengths: ContextLengths) -> float:
        if self.scale_form == "formula":
            return super().scale_at(lengths)
        return dynamic_scale(self.growth(lengths), lengths.target // 2, lengths.trained)


METHOD = Ntk64k
SOURCE = Source(
    paper="arXiv:2409.12181",
    place="appendix 9.2 (formula) and tables 7, 8 (printed 57)",
    reference="github.com/Leooyii/LCEG@2ce672dc42b9b5d3e408e8117126c28caeaafcc0",
    differs="the default is the formula's scale, 121; tables 7 and 8 print 57. s is not rounded up"
    " to an integer, and each request has one base",
)
EVIDENCE = (
    frequencies(
        (1.0, 8.024905e-1, 2.958276e-2, 1.090529e-3, 8.751395e-4, 2.588904e-5, 9.543653e-7),
        origin=f"{EXACT}; scale 121 of LCEG's formula and code",
        target=65536,
    ),
    frequencies(
        (1.0, 8.121364e-1, 3.581488e-2, 1.579422e-3, 1.282706e-3, 4.593996e-5, 2.025933e-6),
        origin=f"{EXACT}; scale 57 of LCEG tables 7 and 8",
        target=65536,
        scale_form="printed",
    ),
    frequencies(
        (1.0, 8.121364e-1, 3.581488e-2, 1.579422e-3, 1.282706e-3, 4.593996e-5, 2.025933e-6),
        origin=f"{EXACT}; scale 57 at 4096 tokens too",
        target=65536,
        request=4096,
        scale_form="printed",
    ),
    frequencies(
        (1.0, 3.71743083e-1),
        origin="transformers 5.23 'dynamic', factor 16, Phi-2 at 65536 tokens",
        pairs=(0, 1),
        geometry=PHI2,
        target=65536,
    ),
)
VERSION = 1
