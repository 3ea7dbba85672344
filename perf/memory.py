"""Peak memory of a function call, for the other scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def most_held(call: Callable[[], object]) -> float:
    """Return the peak MiB of torch's CPU allocator during a call, without earlier allocations."""
    # The profiler records every allocation; the resident size of the process is too coarse.
    with torch.profiler.profile(profile_memory=True) as profile:
        call()
    recorded: Any = profile.profiler
    blocks = [e for e in recorded.kineto_results.events() if e.name() == "[memory]"]
    held = np.cumsum([e.nbytes() for e in sorted(blocks, key=lambda e: e.start_ns())])
    return float(held.max()) / 2**20
