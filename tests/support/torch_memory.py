"""Memory that torch allocates on the CPU during a call."""

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import torch


def peak_bytes(call: Callable[[], object]) -> int:
    """Return the peak of torch's allocator during a call, without earlier allocations."""
    # The profiler records every allocation; the resident size of the process is too coarse.
    with torch.profiler.profile(profile_memory=True) as profile:
        call()
    recorded: Any = profile.profiler
    blocks = [e for e in recorded.kineto_results.events() if e.name() == "[memory]"]
    ordered = sorted(blocks, key=lambda event: event.start_ns())
    return max(accumulate(event.nbytes() for event in ordered))
