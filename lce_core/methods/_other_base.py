"""Base class of methods that replace the RoPE base for all pairs and lengths."""

from lce_core.methods import Base, Method
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable


class OtherBase(Method):
    """Replaces the model's RoPE base by `base`, for all pairs and all request lengths."""

    family = "base"

    base: Base

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return RopeTable(geometry.inv_freq(self.base))
