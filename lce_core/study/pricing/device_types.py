"""What GPUs can do, for prices: peaks from data sheets, and the share of them that work reaches.

Peaks: NVIDIA's data sheets of the A100 (80 GB, SXM), H100 (SXM) and H200 (SXM), dense bf16 FLOP/s
and bandwidth of the memory. Shares of a peak, FLOPs counted as in `lce_core.study.cost`, which
leaves recomputation out:

- A100, 0.48 (150 TFLOP/s): Llama-2-7B with FlashAttention-2 at 32k comes to 0.50 with everything
  recomputed and 0.65 with nothing (computed from products at 250 TFLOP/s and attention at 200);
  LongLoRA's full fine-tuning to 0.38 (computed from arXiv:2309.12307).
- H100 and H200, training 0.38: the same sum gives 0.34 with FlashAttention-2 and 0.44 with cuDNN,
  everything recomputed; torchtitan's Llama-3-8B at 8k, compiled, reaches 0.35 (December 2024).
  Prefill 0.45: nothing is recomputed, and attention's forward pass is its faster half.
- Memory, 0.8 of the peak: assumed.
- Seconds of a layer for one more token, 6e-4: 37 kernels a layer are launched one after the other,
  whatever the GPU. With it 7B decodes in 24 ms a token on an H100 and in 28 ms on an A100.

Nothing of this was measured by this project on a GPU. A CPU has no entry: what it does is measured
(`lce_core.study.pricing.speed`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DeviceType:
    """One kind of GPU."""

    name: str
    peak_flops: float
    """Dense bf16 FLOP/s."""
    bandwidth: float
    """Bytes/s of its memory."""
    training_share: float
    """Of the peak FLOP/s, in training."""
    prefill_share: float
    """Of the peak FLOP/s, where prompts and windows are read."""
    memory_share: float = 0.8
    layer_seconds: float = 6e-4
    """Of the host, to start a layer for one more token of each text of a batch."""


DEVICE_TYPES = {
    device.name: device
    for device in (
        DeviceType("a100", 312e12, 2.039e12, training_share=0.48, prefill_share=0.48),
        DeviceType("h100", 989e12, 3.35e12, training_share=0.38, prefill_share=0.45),
        DeviceType("h200", 989e12, 4.8e12, training_share=0.38, prefill_share=0.45),
    )
}


def device_type_of(name: str) -> DeviceType | None:
    """The entry for a device as its driver names it ("NVIDIA A100-SXM4-80GB"); None without one."""
    return next((d for key, d in DEVICE_TYPES.items() if key in name.lower()), None)
