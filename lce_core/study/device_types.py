"""What devices can do, for prices: peaks from data sheets, and the share of them that work reaches.

Peaks: NVIDIA's data sheets of the A100 (80 GB, SXM), H100 (SXM) and H200 (SXM), dense bf16 and memory
bandwidth. Shares of a peak, with training FLOPs as `lce_core.study.cost` counts them, recomputation
left out:

- A100, 0.48: Llama-2-7B with FlashAttention-2 at 32k, 2,380 to 3,080 tokens/s by matrix products at
  250 and attention at 200 TFLOP/s (0.50 to 0.65, computed), LongLoRA's full fine-tuning (0.38,
  computed from arXiv:2309.12307, table 4). 150 TFLOP/s lies between.
- H100 and H200, training 0.38: Llama-3-8B at 8k reaches 0.35 compiled (torchtitan, December 2024);
  the same sum for Llama-2-7B at 32k gives 0.34 with FlashAttention-2 and 0.44 with cuDNN, everything
  recomputed. Prefill 0.45: no recomputation, and attention's forward pass is its faster half.
- Memory, 0.8 of the peak, as large copies reach; not measured by this project.
- Seconds of a layer for one more token, 6e-4: about 37 kernels are launched a layer, one after the
  other, whatever the GPU; with them 7B decodes in 24 ms a token on an H100 and 27 ms on an A100
  (computed). A decoder that captures its kernels once would be faster.

None of this was measured by the project on a GPU. A CPU has no entry: what it does is measured
(`lce_core.study.speed`).
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
