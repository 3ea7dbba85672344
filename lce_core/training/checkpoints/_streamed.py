"""Write a safetensors file tensor by tensor, holding one tensor at a time in host memory.

The safetensors library converts all tensors to bytes before it writes: 81 GB at once for a 7B model
sharded over eight GPUs.

Format: 8 bytes with the header's length, the header as JSON, then the tensors' bytes in order.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64"}


def write(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write floating-point tensors, copying each one from its device just before it is written."""
    header, end = {}, 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    # Pad the header so that the tensors start at a multiple of eight bytes.
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in header:
            file.write(_bytes(tensors[name]))


def _bytes(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data
