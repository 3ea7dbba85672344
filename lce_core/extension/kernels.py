"""Which kernel computes attention: what the device, the dtype and the installed packages allow.

The order in which torch tries its own is left to torch: from compute capability 9.0 on cuDNN's
first, where cuDNN is new enough, else flash. It belongs to the process. Set for a part of one, as
`sdpa_kernel` does, it would be another one for what a backward pass computes again, and for what is
evaluated after training.
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
"""Dtypes of half precision."""


def stock_kernel(device: torch.device, dtype: torch.dtype, kernel: Kernel) -> str:
    """Name under which transformers knows its own attention.

    flash-attn (FA2) is left to GPUs before compute capability 9.0, where it is the fastest; from
    there on torch has cuDNN's kernel, and its own FA2 for pieces of a text that follow others.

    Raises:
      SpecError: flash attention is demanded where it cannot run.
    """
    can = device.type == "cuda" and dtype in HALF and is_flash_attn_2_available()
    if kernel == "flash" and not can:
        raise SpecError(
            "kernel",
            f"'flash' on {device.type} with {dtype}",
            "a CUDA device, bf16 or fp16, and the flash-attn package for the flash kernel",
            "use kernel: auto, or install the extra `gpu` and set precision: bf16",
        )
    # Never pass the name on without the package: transformers would look for a kernel on the hub.
    slower = can and torch.cuda.get_device_capability(device) >= (9, 0)
    chosen = can and (kernel == "flash" or (kernel == "auto" and not slower))
    return "flash_attention_2" if chosen else "sdpa"


def scheme_kernel(
    scheme: AttentionScheme, device: torch.device, dtype: torch.dtype, kernel: Kernel
) -> str:
    """Name of the kernel family that computes a scheme.

    Raises:
      SpecError: flash attention is demanded where it cannot run.
    """
    name = backend(device, dtype) if scheme.uses_flash else "matmul"
    if kernel == "flash" and name != "torch_flash":
        if not scheme.uses_flash:
            raise SpecError(
                "kernel",
                f"'flash' for {type(scheme).__name__}, which has no flash kernel",
                "a kernel that the method has",
                "use kernel: auto",
            )
        raise SpecError(
            "kernel",
            f"'flash' on {device.type} with {dtype}",
            "a CUDA device and bf16 or fp16 for the flash kernel of attention schemes",
            "use kernel: auto, or set precision: bf16 on a GPU",
        )
    return name
