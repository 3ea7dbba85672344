"""Where tests of numbers run: here on the CPU, and on a CUDA device where they are marked `gpu`.

Files of such tests import nothing of the extra `dev` but pytest.
"""

from dataclasses import dataclass

import pytest
import torch


@dataclass(frozen=True)
class Place:
    device: torch.device
    dtype: torch.dtype

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def tolerance(self) -> float:
        """Of numbers of order one against float64 of the same inputs."""
        return 1e-5 if self.dtype == torch.float32 else 3e-2


def _places(*dtypes: torch.dtype) -> list[object]:
    return [
        pytest.param(
            Place(torch.device(device), dtype),
            id=f"{device}-{str(dtype).removeprefix('torch.')}",
            marks=[pytest.mark.gpu] if device == "cuda" else [],
        )
        for device in ("cpu", "cuda")
        for dtype in dtypes
    ]


over_places = pytest.mark.parametrize("place", _places(torch.float32, torch.bfloat16))
over_devices = pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
)
