"""Predict the seconds of a step on a device from a data sheet, finished steps or a calibration.

    seconds = FLOPs / rate
              + max(decoding bytes / bandwidth, decoding FLOPs / rate)
              + seconds per layer x decoding layer passes
              + fixed seconds per step of this kind

GPU rates come from `device_types`. CPU rates are fitted to the store's records of this machine,
separately for training and for cells. Without records, a matrix product is timed, which takes a
fraction of a second.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from lce_core.errors import SpecError
from lce_core.study.pricing.calibration import LEAST, Calibration, Timing
from lce_core.study.pricing.device_types import DEVICE_TYPES, DeviceType
from lce_core.study.pricing.finished import Finished
from lce_core.study.step_cost import StepCost
from lce_core.study.step_kinds import TrainingSpec, kind_named

Origin = Literal["data sheet", "measured", "guessed"]

_CALIBRATION_SECONDS = 0.1
_SHARE_OF_MATMUL = 0.4
"""Fraction of a large matrix product's FLOP/s that the small models run on CPUs reach. The toy
study's cells reach 0.35 to 0.45 (2 cores of an EPYC, fp32)."""
_CPU_LAYER_SECONDS = 1e-3
_SIDE = 512
_FOLDS = 5
_COPIED_BYTES = 1 << 25
_GUESSED_SECONDS = {
    "tokens": 60.0, "rows": 2.0, "held_out": 1.0, "base": 1.0, "finetune": 1.0, "cell": 0.05
}  # fmt: skip
"""Fixed seconds per step, by kind, on a CPU without records."""


@dataclass(frozen=True)
class Rates:
    """Rates of a device for one type of work, training or evaluation."""

    flops: float
    """Compute rate in FLOP/s."""
    bandwidth: float = float("inf")
    """Memory bandwidth in bytes/s while decoding."""
    layer_seconds: float = 0.0
    """Seconds per layer pass while decoding."""

    def seconds(self, cost: StepCost) -> float:
        """Return the seconds that a cost takes, without the fixed seconds of each step."""
        decoding = cost.decoding
        read = max(decoding.bytes / self.bandwidth, decoding.flops / self.flops)
        return cost.flops / self.flops + read + decoding.layer_passes * self.layer_seconds


@dataclass(frozen=True)
class Speed:
    """Predicts the seconds of steps on one device."""

    device: str
    """Device name: "cpu", or a key of `DEVICE_TYPES`."""
    origin: Origin
    """Source of the rates: a GPU's data sheet, finished steps ("measured") or a timed matrix
    product ("guessed")."""
    training: Rates
    evaluation: Rates
    step_seconds: Mapping[str, float] = field(default_factory=dict)
    """Fixed seconds per step, by kind."""

    def seconds(self, kind: str, cost: StepCost) -> float:
        """Predict the seconds of a step of this kind."""
        trains = issubclass(kind_named(kind), TrainingSpec)
        rates = self.training if trains else self.evaluation
        return rates.seconds(cost) + self.step_seconds.get(kind, 0.0)


def speed_of(device: str, finished: Sequence[Finished]) -> Speed:
    """Return the speed of a device.

    Args:
      device: "cpu", which means this machine, or a key of `DEVICE_TYPES`.
      finished: Steps finished on this machine's CPU (`lce_core.study.pricing.finished`).

    Raises:
      SpecError: if the device is unknown.
    """
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
    """Return the speed of a GPU from its peaks and the achievable shares."""
    memory = (device.bandwidth * device.memory_share, device.layer_seconds)
    return Speed(
        device.name,
        "data sheet",
        training=Rates(device.peak_flops * device.training_share),
        evaluation=Rates(device.peak_flops * device.prefill_share, *memory),
    )


def fitted(finished: Sequence[Finished], calibrate: Callable[[], Rates]) -> Speed:
    """Fit this CPU's speed to finished steps; `calibrate` gives the rates of work without any."""
    kinds = {kind: [one for one in finished if one.kind == kind] for kind in _GUESSED_SECONDS}
    trained, evaluated = kinds["base"] + kinds["finetune"], kinds["cell"]
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
    """Estimate the rates from the CPU time of one matrix product and one memory copy."""
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
    """Return the least CPU seconds of one call, over `_CALIBRATION_SECONDS` of repetitions."""
    work()
    best, end = float("inf"), time.monotonic() + _CALIBRATION_SECONDS
    while time.monotonic() < end:
        begun = time.thread_time()  # excludes other threads and other processes
        work()
        best = min(best, time.thread_time() - begun)
    return max(best, 1e-9)


def _fit(finished: Sequence[Finished]) -> tuple[Rates, float]:
    """Fit rates and fixed seconds per step to finished steps.

    Minimise the squared relative errors under non-negative weights, then scale all weights so that
    the sum of the predictions equals the sum of the measured seconds.
    """
    seconds = np.array([max(one.seconds, 1e-3) for one in finished])
    costs = np.array(
        [
            (one.cost.flops, 1.0, one.cost.decoding.bytes, one.cost.decoding.layer_passes)
            for one in finished
        ]
    )
    weights = _non_negative(costs / seconds[:, None])
    weights *= seconds.sum() / (costs @ weights).sum()
    per_flop, of_a_step, per_byte, per_layer = weights.tolist()
    bandwidth = 1.0 / per_byte if per_byte else float("inf")
    return Rates(1.0 / per_flop, bandwidth, per_layer), of_a_step


def _non_negative(costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return weights w >= 0, with w[0] > 0, that minimise |costs w - 1|.

    Solve least squares on every subset of columns that contains column 0. With at most four columns
    that is at most eight problems.
    """
    best, least = np.zeros(costs.shape[1]), float("inf")
    scale = np.abs(costs).max(axis=0)
    columns = [index for index in range(1, costs.shape[1]) if scale[index]]
    for number in range(len(columns) + 1):
        for chosen in itertools.combinations(columns, number):
            used = [0, *chosen]
            part = costs[:, used] / scale[used]
            found = np.linalg.lstsq(part, np.ones(len(costs)), rcond=None)[0]
            error = float(np.square(part @ found - 1).sum())
            if found.min() >= 0 and found[0] > 0 and error < least:
                best, least = np.zeros(costs.shape[1]), error
                best[used] = found / scale[used]
    return best


def calibration_of(speed: Speed, finished: Sequence[Finished]) -> Calibration:
    """Return the lines that map a speed's predictions to the times of finished steps.

    If the speed was fitted to the same steps, the error is estimated by 5-fold cross-validation,
    because the residuals of the fit would understate it.
    """
    judged: dict[int, float] = {}
    if speed.origin == "measured" and len(finished) >= LEAST:
        for fold in range(_FOLDS):
            rest = [one for number, one in enumerate(finished) if number % _FOLDS != fold]
            without = fitted(rest, timed_matmul)
            for number in range(fold, len(finished), _FOLDS):
                one = finished[number]
                judged[number] = without.seconds(one.kind, one.planned)
    return Calibration(
        Timing(one.group, speed.seconds(one.kind, one.planned), one.seconds, judged.get(number))
        for number, one in enumerate(finished)
    )
