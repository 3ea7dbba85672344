"""Speed of GPUs for the cost model: peaks from data sheets, and the assumed fraction reached.

Peaks are dense bf16 FLOP/s and memory bandwidth from NVIDIA's data sheets of the A100 (80 GB, SXM),
H100 (SXM) and H200 (SXM). Fractions count FLOPs as `lce_core.study.cost` does, without
recomputation:

- A100, 0.48 (150 TFLOP/s): Llama-2-7B with FlashAttention-2 at 32k reaches 0.50 with full
  recomputation and 0.65 without (calculated with matrix products at 250 TFLOP/s and attention at
  200). LongLoRA's full fine-tuning reaches 0.38 (calculated from arXiv:2309.12307).
- H100 and H200, training, 0.38: the same calculation with full recomputation gives 0.34 with
  FlashAttention-2 and 0.44 with cuDNN. torchtitan's compiled Llama-3-8B at 8k reaches 0.35
  (December 2024). Prefill, 0.45: nothing is recomputed, and attention's forward pass is more
  efficient than its backward pass.
- Memory bandwidth, 0.8 of the peak: assumed.
- Seconds per layer and decoded token, 6e-4: the host launches 37 kernels per layer one after
  another on any GPU. With this value a 7B model takes 24 ms per token on an H100, 28 ms on an A100.

This project has measured none of these values on a GPU. There is no CPU entry because
`lce_core.study.pricing.speed` measures the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeviceType:
    """Peak rates of one GPU model, and the fractions of them that lce is assumed to reach."""

    name: str
    peak_flops: float
    """Dense bf16 FLOP/s."""
    bandwidth: float
    """Memory bandwidth in bytes/s."""
    training_share: float
    """Fraction of the peak FLOP/s reached in training."""
    prefill_share: float
    """Fraction of the peak FLOP/s reached when prompts and windows are processed."""
    memory_share: float = 0.8
    layer_seconds: float = 6e-4
    """Seconds that the host needs to launch the kernels of one layer in one decoding pass."""


DEVICE_TYPES = {
    device.name: device
    for device in (
        DeviceType("a100", 312e12, 2.039e12, training_share=0.48, prefill_share=0.48),
        DeviceType("h100", 989e12, 3.35e12, training_share=0.38, prefill_share=0.45),
        DeviceType("h200", 989e12, 4.8e12, training_share=0.38, prefill_share=0.45),
    )
}


def device_type_of(name: str) -> DeviceType | None:
    """Return the GPU model of a driver's device name such as "NVIDIA A100-SXM4-80GB".

    Return None if the model is not in `DEVICE_TYPES`.
    """
    return next((d for key, d in DEVICE_TYPES.items() if key in name.lower()), None)
