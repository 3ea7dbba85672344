"""Attention schemes and their kernels: the only connection to transformers' attention.

A scheme is a small frozen description (window sizes, group sizes) that names its kernel as
"module:function". The kernel's module is imported only when a model is extended, so describing a
method does not import torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class AttentionScheme:
    """An attention other than full causal softmax over rotated keys, described by its sizes.

    Subclasses add sizes as fields and set `kernel`. The function is called as `kernel(scheme,
    inputs)` with `lce_core.attention.inputs.AttentionInputs` and returns (batch, heads, queries,
    head_dim).
    """

    kernel: ClassVar[str]
    """Import path of the kernel function: "module:function"."""
    differentiable: ClassVar[bool] = False
    """True if gradients flow through the kernel; otherwise passes with gradients are refused."""
    heads_alike: ClassVar[bool] = True
    """True if every head attends alike, so that the caller may pass the kernel some heads at a
    time."""
    uses_flash: ClassVar[bool] = True
    """True if the kernel uses `lce_core.attention.flash`, False if it uses plain matrix products.
    """

    def mean_keys(self, length: float) -> float:
        """Return the mean number of keys per query in a sequence of `length` tokens.

        The cost model uses this number; the default is causal attention, half of the sequence.
        """
        return length / 2
