"""Choose the attention kernel that device, dtype and installed packages allow; record what runs.

With "sdpa", torch selects the kernel: on GPUs from compute capability 9.0 that of a recent cuDNN,
otherwise flash. Its order of preference is a setting of the whole process, which lce leaves
unchanged outside single attention calls (`lce_core.attention.registered`): changed for a forward
pass, it would not hold when the backward pass recomputes layers.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import torch
from torch.nn.attention import (
    activate_flash_attention_impl,
    current_flash_attention_impl,
    restore_flash_attention_impl,
)
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.utils.import_utils import is_flash_attn_2_available

from lce_core.attention import AttentionScheme
from lce_core.attention.flash import HALF, backend
from lce_core.errors import SpecError
from lce_core.recipe import Kernel

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


def choose(
    device: torch.device, dtype: torch.dtype, kernel: Kernel, scheme: AttentionScheme | None = None
) -> str:
    """Return the kernel that computes attention with this setting of the study.

    For an attention scheme it is a backend of `lce_core.attention.flash`, "flash3" or "matmul".
    Without one it is "sdpa" (torch selects), "flash_attention_2" (the flash-attn package),
    "torch_flash" (torch's copy of FlashAttention-2) or "flash3". "flash" is the package if it is
    installed. "auto" is the package on GPUs below compute capability 9.0, where it is the fastest,
    else "sdpa".
    """
    if scheme is not None and not scheme.uses_flash:
        if kernel in ("flash", "flash3"):
            raise SpecError(
                "kernel",
                f"{kernel!r} for {type(scheme).__name__}, which has no flash kernel",
                "'auto' for this attention scheme",
                "use kernel: auto",
            )
        return "matmul"
    if (needs := _missing(device, dtype, kernel)) is not None:
        kernels: tuple[Kernel, ...] = ("auto", "sdpa", "flash", "flash3")
        runs = ", ".join(one for one in kernels if _missing(device, dtype, one) is None)
        got = f"{kernel!r} on {device.type} with {dtype}"
        raise SpecError("kernel", got, needs, f"change precision or machine, or use one of {runs}")
    if kernel == "flash3":
        return "flash3"
    if scheme is not None:
        return backend(device, dtype)
    half = device.type == "cuda" and dtype in HALF
    package = kernel != "sdpa" and half and is_flash_attn_2_available()
    if kernel == "flash":
        return "flash_attention_2" if package else "torch_flash"
    older = package and torch.cuda.get_device_capability(device) < (9, 0)
    return "flash_attention_2" if older else "sdpa"


def activate(name: str) -> None:
    """Select FlashAttention-3 or 2 for the process; torch has one implementation at a time."""
    active = current_flash_attention_impl() == "FA3"
    if name == "flash3" and not active:
        activate_flash_attention_impl("FA3")
    elif name != "flash3" and active:
        restore_flash_attention_impl()


def _missing(device: torch.device, dtype: torch.dtype, kernel: Kernel) -> str | None:
    if kernel not in ("flash", "flash3"):
        return None
    if backend(device, dtype) != "torch_flash":
        return "bf16 or fp16 on a CUDA device of compute capability 8.0 or later"
    if kernel == "flash":
        return None
    if torch.cuda.get_device_capability(device)[0] != 9:
        return "a GPU of compute capability 9 (H100, H200)"
    if find_spec("flash_attn_interface") is None:
        return "FlashAttention-3, the module flash_attn_interface"
    return None


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
