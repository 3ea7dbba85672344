"""Predict how many seconds a step takes on a device.

    seconds = FLOPs / rate
    + max(decoding bytes / bandwidth, decoding FLOPs / rate)
    + seconds per layer x decoding layer passes
    + fixed seconds per step of this kind

The rate (FLOP/s) and bandwidth of GPUs come from data sheets (`device_types`). This machine's CPU
rates are fitted to the store's finished steps, separately for training and for cells, or else
follow from the time of a matrix product.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from scipy.optimize import nnls
from threadpoolctl import threadpool_limits

from lce_core.errors import SpecError
from lce_core.study.pricing.calibration import Calibration
from lce_core.study.pricing.device_types import DEVICE_TYPES, DeviceType
from lce_core.study.pricing.finished import Finished
from lce_core.study.step_cost import StepCost
from lce_core.study.step_kinds import TrainingSpec, kind_named

Origin = Literal["data sheet", "measured", "guessed"]

_CALIBRATION_SECONDS = 0.1
"""Seconds for which `timed_matmul` repeats the matrix product, and then the memory copy."""
_SHARE_OF_MATMUL = 0.4
"""Assumed ratio of a small model's FLOP/s on a CPU to a large matrix product's. The toy study's
cells reach 0.35 to 0.45 (measured on 2 cores of an EPYC in fp32)."""
_CPU_LAYER_SECONDS = 1e-3
"""Assumed seconds per layer and decoding pass on a CPU without finished steps."""
_SIDE = 512
"""Rows and columns of the timed matrices."""
_COPIED_BYTES = 1 << 25
"""32 MiB, more than most CPU caches."""
_GUESSED_SECONDS = {
    "tokens": 60.0, "rows": 2.0, "held_out": 1.0, "base": 1.0, "search": 1.0, "finetune": 1.0,
    "cell": 0.05,
}  # fmt: skip
"""Assumed fixed seconds per step on a CPU without finished steps."""


@dataclass(frozen=True)
class Rates:
    """Compute and memory rates of a device, for training or for evaluation."""

    flops: float
    """FLOP/s."""
    bandwidth: float = float("inf")
    """Bytes per second while decoding."""
    layer_seconds: float = 0.0
    """Fixed seconds per layer and decoding pass."""

    def seconds(self, cost: StepCost) -> float:
        """Return the seconds for a step's cost, without the fixed seconds of the step."""
        decoding = cost.decoding
        read = max(decoding.bytes / self.bandwidth, decoding.flops / self.flops)
        return cost.flops / self.flops + read + decoding.layer_passes * self.layer_seconds


@dataclass(frozen=True)
class Speed:
    """Cost model of one device: predicts how many seconds steps take."""

    device: str
    """"cpu", or a key of `DEVICE_TYPES`."""
    origin: Origin
    """A GPU's data sheet, finished steps ("measured"), or a timed matrix product ("guessed")."""
    training: Rates
    evaluation: Rates
    step_seconds: Mapping[str, float] = field(default_factory=dict)
    """Fixed seconds per step, such as for loading a model, by kind."""

    def seconds(self, kind: str, cost: StepCost) -> float:
        trains = issubclass(kind_named(kind), TrainingSpec)
        rates = self.training if trains else self.evaluation
        return rates.seconds(cost) + self.step_seconds.get(kind, 0.0)


def speed_of(device: str, finished: Sequence[Finished]) -> Speed:
    """Return the cost model of this machine's "cpu", or of a key of `DEVICE_TYPES`."""
    if device == "cpu":
        return fitted(finished, timed_matmul)
    if device not in DEVICE_TYPES:
        raise SpecError(
            "--device-type",
            repr(device),
            f"one of {', '.join(DEVICE_TYPES)}, cpu",
            "choose one of these",
        )
    return from_data_sheet(DEVICE_TYPES[device])


def from_data_sheet(device: DeviceType) -> Speed:
    """Return a GPU's cost model: peak rates times the fractions assumed to be reached."""
    memory = (device.bandwidth * device.memory_share, device.layer_seconds)
    return Speed(
        device.name,
        "data sheet",
        training=Rates(device.peak_flops * device.training_share),
        evaluation=Rates(device.peak_flops * device.prefill_share, *memory),
    )


def fitted(finished: Sequence[Finished], calibrate: Callable[[], Rates]) -> Speed:
    """Fit the cost model of this machine's CPU to finished steps.

    `calibrate` returns the rates of training, evaluation or decoding where no step shows them.
    Cells that reused all losses of other cells passed no token and show nothing.
    """
    kinds = {kind: [one for one in finished if one.kind == kind] for kind in _GUESSED_SECONDS}
    trained = kinds["base"] + kinds["finetune"]
    evaluated = [one for one in kinds["cell"] if one.cost.flops]
    beside = dict(_GUESSED_SECONDS)
    for kind in ("tokens", "rows", "held_out"):
        if kinds[kind]:
            beside[kind] = float(np.median([one.seconds for one in kinds[kind]]))
    decoded = any(one.cost.decoding.bytes for one in evaluated)
    guess = Rates(1.0) if trained and decoded else calibrate()
    training = evaluation = guess
    if trained:
        training, seconds = _fit(trained)
        beside |= {"base": seconds, "finetune": seconds}
    if evaluated:
        evaluation, beside["cell"] = _fit(evaluated)
    if not decoded:
        evaluation = replace(
            evaluation, bandwidth=guess.bandwidth, layer_seconds=guess.layer_seconds
        )
    return Speed("cpu", "measured" if finished else "guessed", training, evaluation, beside)


@functools.cache
def timed_matmul() -> Rates:
    """Estimate this CPU's rates from the time of a matrix product and of a memory copy."""
    square = np.ones((_SIDE, _SIDE), dtype=np.float32)
    long = np.ones(_COPIED_BYTES // 4, dtype=np.float32)
    # BLAS threads busy-wait for each other. On a loaded machine that would dominate the CPU time.
    with threadpool_limits(1, "blas"):
        product = _seconds(lambda: square @ square)
    copy = _seconds(lambda: long.copy())
    return Rates(
        flops=_SHARE_OF_MATMUL * 2 * _SIDE**3 / product,
        bandwidth=2 * _COPIED_BYTES / copy,
        layer_seconds=_CPU_LAYER_SECONDS,
    )


def _seconds(work: Callable[[], object]) -> float:
    """Call `work` repeatedly for `_CALIBRATION_SECONDS`; return CPU seconds of the fastest call."""
    work()
    best, end = float("inf"), time.monotonic() + _CALIBRATION_SECONDS
    while time.monotonic() < end:
        begun = time.thread_time()  # excludes other threads and other processes
        work()
        best = min(best, time.thread_time() - begun)
    return max(best, 1e-9)


def _fit(finished: Sequence[Finished]) -> tuple[Rates, float]:
    """Fit rates and fixed seconds per step to finished steps.

    Minimise the squared relative errors with non-negative weights. Then scale all weights so that
    the predictions and the measured seconds have equal sums.
    """
    seconds = np.array([max(one.seconds, 1e-3) for one in finished])
    costs = np.array(
        [
            (one.cost.flops, 1.0, one.cost.decoding.bytes, one.cost.decoding.layer_passes)
            for one in finished
        ]
    )
    columns = costs / seconds[:, None]
    scale = columns.max(axis=0)
    scale[scale == 0] = 1.0
    weights = nnls(columns / scale, np.ones(len(finished)))[0] / scale
    if not weights[0]:  # seconds that do not grow with the FLOPs would predict no larger study
        weights = np.eye(4)[0]
    weights *= seconds.sum() / (costs @ weights).sum()
    per_flop, of_a_step, per_byte, per_layer = weights.tolist()
    bandwidth = 1.0 / per_byte if per_byte else float("inf")
    return Rates(1.0 / per_flop, bandwidth, per_layer), of_a_step


def calibration_of(speed: Speed, finished: Sequence[Finished]) -> Calibration:
    """Return a correction of the cost model's predictions by finished steps."""
    calibration = Calibration()
    for one in finished:
        calibration.learn(one.group, speed.seconds(one.kind, one.planned), one.seconds)
    return calibration
