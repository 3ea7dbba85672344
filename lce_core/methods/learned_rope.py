"""Learned frequencies: training learns the logarithm of each pair's frequency.

Design: the frequency of pair k is the start's frequency times exp(f m_k). Training learns m_k,
which is 0 at first, and f scales the learning rate. LeRoPE shares m_k among all layers and heads;
AdaRoPE has one for each layer and key-value head. Query heads that share a key-value head share its
frequencies, because the key is rotated once. Frequencies do not depend on the request's length.
"""

from typing import Literal

from pydantic import Field

from lce_core.evidence import EXACT, frequencies, value
from lce_core.methods import Method, checked_scale
from lce_core.methods._by_parts import WithTemperature
from lce_core.registry import Examples, Source
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable


class LearnedRope(Method):
    """Frequencies that training learns, shared by all layers and heads or not."""

    family = "interpolation"
    training = "required"
    rotary = "lce_core.extension.learned:LearnedRotary"

    sharing: Literal["all", "layer", "head"] = "all"
    """What shares its frequencies: "all" layers and heads of the model, the heads of a "layer", or
    the query heads of a key-value "head" of one layer."""
    start: Literal["none", "yarn"] = "none"
    """Frequencies before training: those of the base model, or those of YaRN with its temperature,
    which stays fixed."""
    learning_rate_factor: float = Field(default=1.0, gt=0)
    """Learning rate of the logarithms of the frequencies, divided by that of the weights."""

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        if self.start == "none":
            return RopeTable(geometry.inv_freq())
        return WithTemperature().table(geometry, checked_scale(self, None, lengths))

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        self.rope_table(geometry, lengths)


METHOD = LearnedRope
SOURCE = Source(
    paper="arXiv:2607.10134",
    place="LeRoPE, one log-multiplier per pair; `sharing: head` as in AdaRoPE, arXiv:2607.19363",
    reference="own",
    differs="LeRoPE trains from scratch. AdaRoPE also learns a factor of each head's logits, which"
    " depends on the length. Neither has published code. `learning_rate_factor` multiplies the"
    " parameter, which scales its learning rate because AdamW normalises gradients",
)
EVIDENCE = (
    frequencies(
        (1.0, 8.659643e-1, 1.0e-1, 1.154782e-2, 1.0e-2, 1.0e-3, 1.154782e-4),
        origin=f"{EXACT}; the base model's, before training",
    ),
    frequencies(
        (1.0, 8.659643e-1, 1.0e-1, 7.272906e-3, 5.961538e-3, 1.25e-4, 1.443477e-5),
        origin=f"{EXACT}; YaRN's, before training",
        start="yarn",
    ),
    value(
        "attention_factor", 1.2079441541679836, "transformers 5.23 'yarn', factor 8", start="yarn"
    ),
)
EXAMPLES: Examples = (
    {},
    {"start": "yarn"},
    {"sharing": "layer"},
    {"sharing": "head", "learning_rate_factor": 10.0},
)
VERSION = 1
