"""Choose the attention kernel that device, dtype and installed packages allow.

With "sdpa", torch selects the kernel: on GPUs from compute capability 9.0 that of a recent cuDNN,
otherwise flash. Its order of preference is a setting of the whole process. lce leaves it unchanged,
because a change for some passes (`sdpa_kernel`) would also affect recomputation in backward passes
and evaluations after training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from transformers.utils.import_utils import is_flash_attn_2_available

from lce_core.attention import AttentionScheme
from lce_core.attention.flash import backend
from lce_core.errors import SpecError

if TYPE_CHECKING:
    from lce_core.recipe import Kernel

HALF = (torch.float16, torch.bfloat16)
"""The half-precision dtypes."""


def stock_kernel(device: torch.device, dtype: torch.dtype, kernel: Kernel) -> str:
    """Return the attention function of transformers to use: "flash_attention_2" or "sdpa".

    "auto" chooses the flash-attn package (FA2) on GPUs below compute capability 9.0, where it is
    the fastest. From 9.0 on it chooses "sdpa": torch has cuDNN's kernel, and its own FA2 kernel for
    tokens that follow a cache.

    Raises:
      SpecError: if `kernel` is "flash" and flash attention cannot run.
    """
    can = device.type == "cuda" and dtype in HALF and is_flash_attn_2_available()
    if kernel == "flash" and not can:
        raise SpecError(
            "kernel",
            f"'flash' on {device.type} with {dtype}",
            "a CUDA device, bf16 or fp16, and the flash-attn package for the flash kernel",
            "use kernel: auto, or install the extra `gpu` and set precision: bf16",
        )
    # Never return "flash_attention_2" without the package: transformers would then look for a
    # kernel on the hub.
    slower = can and torch.cuda.get_device_capability(device) >= (9, 0)
    chosen = can and (kernel == "flash" or (kernel == "auto" and not slower))
    return "flash_attention_2" if chosen else "sdpa"


def scheme_kernel(
    scheme: AttentionScheme, device: torch.device, dtype: torch.dtype, kernel: Kernel
) -> str:
    """Return the backend that computes an attention scheme.

    This is one of the backends of `lce_core.attention.flash`, or "matmul" for schemes that use
    plain matrix products.

    Raises:
      SpecError: if `kernel` is "flash", but the scheme has no flash kernel or it cannot run here.
    """
    name = backend(device, dtype) if scheme.uses_flash else "matmul"
    if kernel == "flash" and name != "torch_flash":
        if not scheme.uses_flash:
            raise SpecError(
                "kernel",
                f"'flash' for {type(scheme).__name__}, which has no flash kernel",
                "'auto' for this attention scheme",
                "use kernel: auto",
            )
        raise SpecError(
            "kernel",
            f"'flash' on {device.type} with {dtype}",
            "a CUDA device and bf16 or fp16 for the flash kernel of attention schemes",
            "use kernel: auto, or set precision: bf16 on a GPU",
        )
    return name
