"""Attention schemes (which keys a query sees, at which distances) and the kernels for them.

A scheme is a small frozen dataclass with sizes such as `window` as fields. It names its kernel, the
function that computes the attention, as "module:function". A context-extension method returns the
scheme that a model should use. The kernel's module is imported at the model's first forward pass,
so code that only describes methods does not import torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class AttentionScheme:
    """Base class of attention schemes, for methods that change more than the RoPE frequencies.

    Subclasses add sizes as fields and set `kernel` to the import path of a function. The function
    is called with the scheme and `lce_core.attention.inputs.AttentionInputs` and returns the
    attention output (batch, heads, queries, head_dim).
    """

    kernel: ClassVar[str]
    """Import path of the kernel function: "module:function"."""
    differentiable: ClassVar[bool] = False
    """True if gradients flow through the kernel. If False, a forward pass that records gradients
    raises SpecError."""
    heads_alike: ClassVar[bool] = True
    """True if all heads follow the same rule. At inference, a large layer is then computed a few
    heads at a time to save memory."""
    uses_flash: ClassVar[bool] = True
    """True if the kernel uses `lce_core.attention.flash`, False if it uses plain matrix products.
    """

    def mean_keys(self, length: float) -> float:
        """Return the mean number of keys that a query reads in a sequence of `length` tokens.

        The cost model computes attention FLOPs from this number. The default is the mean of causal
        attention.
        """
        return length / 2
