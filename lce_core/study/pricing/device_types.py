"""Speed of GPUs for the cost model: peaks from data sheets, and the assumed fraction reached.

Peaks are dense bf16 FLOP/s and memory bandwidth from NVIDIA's data sheets of the A100 (80 GB, SXM),
H100 (SXM) and H200 (SXM). Fractions count FLOPs as `lce_core.study.cost` does, without
recomputation:

- A100, 0.48 (150 TFLOP/s): Llama-2-7B with FlashAttention-2 at 32k reaches 0.50 with full
  recomputation and 0.65 without (calculated with matrix products at 250 TFLOP/s and attention at
  200). LongLoRA's full fine-tuning reaches 0.38 (calculated from arXiv:2309.12307).
- H100 and H200, training, 0.45: measured 0.457 on an H200 (Llama-2-7B, rows of 32k, compiled layers
  that keep attention; docs/gpus.md). Prefill, 0.50: measured 0.50 to 0.51 at 16k and 32k.
- Memory bandwidth, 0.8 of the peak: assumed.
- Seconds per layer and decoded token besides reading weights and keys, 3e-4: on an H200 with CUDA
  graphs, 1.2e-4 without an attention scheme, 2.7e-4 for HARPE, 7.4e-4 for Self-Extend (from the
  measured 7.8, 12.4 and 27.6 ms per token).

Nothing was measured on an A100 or an H100. There is no CPU entry because
`lce_core.study.pricing.speed` measures the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeviceType:
    """Peak rates of one GPU model, and the fractions of them that lce is assumed to reach."""

    name: str
    peak_flops: float
    bandwidth: float
    """Bytes per second."""
    training_share: float
    """Fraction of the peak FLOP/s in training."""
    prefill_share: float
    """Fraction of the peak FLOP/s on prompts and windows."""
    memory_share: float = 0.8
    layer_seconds: float = 3e-4
    """Seconds per layer and decoding pass besides reading memory, while the host launches."""


DEVICE_TYPES = {
    device.name: device
    for device in (
        DeviceType("a100", 312e12, 2.039e12, training_share=0.48, prefill_share=0.48),
        DeviceType("h100", 989e12, 3.35e12, training_share=0.45, prefill_share=0.50),
        DeviceType("h200", 989e12, 4.8e12, training_share=0.45, prefill_share=0.50),
    )
}


def device_type_of(name: str) -> DeviceType | None:
    """Return the GPU model of a driver's name such as "NVIDIA A100-SXM4-80GB", if known."""
    return next((d for key, d in DEVICE_TYPES.items() if key in name.lower()), None)
