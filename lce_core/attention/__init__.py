"""The one seam into transformers' attention: schemes here, kernels beside, torch only in kernels.

A scheme is a small frozen description (window sizes, group sizes). It names the function that
computes it as "module:function"; that module is imported when a model is extended, so describing a
method loads no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class AttentionScheme:
    """Description of an attention other than full causal softmax over rotated keys.

    Subclasses add sizes as fields and set `kernel`, which is called as `kernel(scheme, inputs)`
    with `lce_core.attention.inputs.AttentionInputs` and gives (batch, heads, queries, head_dim).
    """

    kernel: ClassVar[str]
    """Where the computation lies: "module:function"."""
    differentiable: ClassVar[bool] = False
    """Gradients flow through the kernel; otherwise a forward pass that wants them is refused."""
    heads_alike: ClassVar[bool] = True
    """Each head is computed as if it were alone, so that some may go before others."""
    uses_flash: ClassVar[bool] = True
    """Computed by `lce_core.attention.flash`; otherwise by matrix products, on any device."""

    def mean_keys(self, length: float) -> float:
        """Keys that a token of a sequence of `length` tokens is scored with, mean over its tokens.

        For the cost model; half of the sequence unless overridden.
        """
        return length / 2
