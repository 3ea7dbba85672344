"""DroPE: no rotation in any layer, after training with RoPE.

Design: all frequencies are 0, so attention sees no positions and nothing is out of range in longer
texts. The order of the tokens reaches a query only through the causal mask. A model that was
trained with RoPE needs a short training run without it, at its trained context: leave
`train_length` at the trained context.
"""

from typing import ClassVar

import numpy as np

from lce_core.evidence import PHI2, frequencies
from lce_core.methods import Family, Method
from lce_core.registry import Source
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable


class DroPE(Method):
    """No rotation in any layer, for models that are tuned without it."""

    family: ClassVar[Family] = "interpolation"
    training = "required"

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return RopeTable(np.zeros(geometry.num_pairs))


METHOD = DroPE
SOURCE = Source(
    paper="arXiv:2512.12167",
    place="abstract",
    reference="https://github.com/SakanaAI/DroPE/tree/260a8bb9f4fda0673266ddfee7668915aade8b33",
    differs="the reference can also add norms of queries and keys, and replace the factor of all"
    " scores by one number (`softmax_scale`); its training settings use neither by default, and"
    " neither exists here",
)
EVIDENCE = (
    frequencies(
        (0.0, 0.0, 0.0),
        "custom_models/attention.py of the reference rotates with cosine 1 and sine 0",
        pairs=(0, 32, 63),
    ),
    frequencies(
        (0.0, 0.0, 0.0),
        "the same, for heads of which a part rotates",
        pairs=(0, 8, 15),
        geometry=PHI2,
        layer=31,
    ),
)
VERSION = 1
