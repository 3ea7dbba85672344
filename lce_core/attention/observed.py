"""Record which attention kernels run; a training run stores the names with its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.nn.attention import current_flash_attention_impl
from torch.utils._python_dispatch import TorchDispatchMode

FUSED: Mapping[str, str] = {
    "aten::_scaled_dot_product_cudnn_attention": "cudnn",
    "aten::_scaled_dot_product_flash_attention": "torch_flash",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "torch_flash_cpu",
    "aten::_scaled_dot_product_efficient_attention": "efficient",
    "aten::_flash_attention_forward": "torch_flash",
    "torch_attn::_varlen_attn": "torch_flash",
    "flash_attn::_flash_attn_forward": "flash_attention_2",
    "flash_attn::_flash_attn_varlen_forward": "flash_attention_2",
}
"""Fused attention operators of torch and flash-attn, with the names that are recorded for them.
Each returns the output and its log-sum-exp, which with the inputs suffice for its backward pass."""


class KernelWatch(TorchDispatchMode):
    """Record which attention operators run inside the `with` block, without changing results."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (name := FUSED.get(func.name())) is not None:
            replaced = name == "torch_flash" and current_flash_attention_impl() == "FA3"
            self.seen.add("flash3" if replaced else name)
        return func(*args, **(kwargs or {}))

    def names(self) -> str:
        return "+".join(sorted(self.seen)) or "matmul"
