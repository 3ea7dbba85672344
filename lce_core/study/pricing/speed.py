"""Predict how many seconds a step takes on a device.

    seconds = FLOPs / rate
    + max(decoding bytes / bandwidth, decoding FLOPs / rate)
    + seconds per layer x decoding layer passes
    + fixed seconds per step of this kind

This machine's CPU rates are fitted to the store's finished steps, separately for training and for
cells, or else follow from the time of a matrix product. Those of GPUs are peaks from NVIDIA's data
sheets of the A100 (80 GB, SXM), H100 (SXM) and H200 (SXM), dense bf16 FLOP/s and memory bandwidth,
times the fraction that lce is assumed to reach. Fractions count FLOPs as `lce_core.study.cost`
does, without recomputation:

- A100, 0.48 (150 TFLOP/s): Llama-2-7B with FlashAttention-2 at 32k reaches 0.50 with full
  recomputation and 0.65 without (calculated with matrix products at 250 TFLOP/s and attention at
  200). LongLoRA's full fine-tuning reaches 0.38 (calculated from arXiv:2309.12307).
- H100 and H200, training, 0.45: measured 0.457 on an H200 (Llama-2-7B, rows of 32k, compiled layers
  that keep attention; docs/gpus.md). Prefill, 0.50: measured 0.50 to 0.51 at 16k and 32k.
- Memory bandwidth, 0.8 of the peak: assumed.
- Seconds per layer and decoded token besides reading weights and keys, 3e-4: on an H200 with CUDA
  graphs, 1.2e-4 without an attention scheme, 2.7e-4 for HARPE, 7.4e-4 for Self-Extend (from the
  measured 7.8, 12.4 and 27.6 ms per token).

Nothing was measured on an A100 or an H100.
"""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from scipy.optimize import nnls
from threadpoolctl import threadpool_limits

from lce_core.errors import SpecError
from lce_core.store.artifacts import Store
from lce_core.store.records import Record, cpu_name
from lce_core.study.cost import StepCost
from lce_core.study.pricing.calibration import Calibration, Group, group_of
from lce_core.study.pricing.passed_once import shares_of_text
from lce_core.study.step_kinds import CellSpec, TrainingSpec, kind_named, spec_of

Origin = Literal["data sheet", "measured", "guessed"]

MOST_RECORDS = 240
"""Records to read per step kind; more would slow down planning without improving the fit."""
_CALIBRATION_SECONDS = 0.1
"""Seconds for which `timed_matmul` repeats the matrix product, and then the memory copy."""
_SHARE_OF_MATMUL = 0.4
"""Assumed ratio of a small model's FLOP/s on a CPU to a large matrix product's. The toy study's
cells reach 0.35 to 0.45 (measured on 2 cores of an EPYC in fp32)."""
_CPU_LAYER_SECONDS = 1e-3
"""Assumed seconds per layer and decoding pass on a CPU without finished steps."""
_MEMORY_SHARE = 0.8
"""Fraction of a GPU's peak memory bandwidth."""
_GPU_LAYER_SECONDS = 3e-4
"""Seconds per layer and decoding pass besides reading memory, while the host launches kernels."""
_SIDE = 512
_COPIED_BYTES = 1 << 25
"""32 MiB, more than most CPU caches."""
_GUESSED_SECONDS = {
    "tokens": 60.0, "rows": 2.0, "held_out": 1.0, "base": 1.0, "search": 1.0, "finetune": 1.0,
    "cell": 0.05,
}  # fmt: skip
"""Assumed fixed seconds per step on a CPU without finished steps."""


@dataclass(frozen=True)
class Rates:
    """Rates of a device, for training or for evaluation."""

    flops: float
    bandwidth: float = float("inf")
    """Bytes per second while decoding."""
    layer_seconds: float = 0.0
    """Fixed seconds per layer and decoding pass."""

    def seconds(self, cost: StepCost) -> float:
        """Return the seconds for a step's cost, without its fixed seconds."""
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


def _gpu(name: str, peak: float, bandwidth: float, training: float, prefill: float) -> Speed:
    """Return a GPU's cost model from peaks and the fractions that training and prompts reach."""
    evaluation = Rates(peak * prefill, bandwidth * _MEMORY_SHARE, _GPU_LAYER_SECONDS)
    return Speed(name, "data sheet", Rates(peak * training), evaluation)


DEVICE_TYPES = {
    speed.device: speed
    for speed in (
        _gpu("a100", 312e12, 2.039e12, training=0.48, prefill=0.48),
        _gpu("h100", 989e12, 3.35e12, training=0.45, prefill=0.50),
        _gpu("h200", 989e12, 4.8e12, training=0.45, prefill=0.50),
    )
}


def device_type_of(name: str) -> str | None:
    """Return the key of `DEVICE_TYPES` in a driver's name such as "NVIDIA A100-SXM4-80GB"."""
    return next((key for key in DEVICE_TYPES if key in name.lower()), None)


@dataclass(frozen=True)
class Finished:
    """Cost and measured time of a finished step."""

    kind: str
    cost: StepCost
    """Cost of the processed tokens; answers may be shorter than planned."""
    seconds: float
    """Summed over the processes of a training run, one per GPU."""
    planned: StepCost
    """Cost in a plan, with answers of maximum length."""
    group: Group


def finished_on(device: str, store: Store, threads: int) -> list[Finished]:
    """Return a sample of a device's finished steps; "cpu" means this model and `threads`."""
    found = []
    for record in store.sample(MOST_RECORDS):
        if _ran_on(record, threads) != device:
            continue
        try:
            cost, planned = _costs(record)
            trains = issubclass(kind_named(record.kind), TrainingSpec)
        except (SpecError, KeyError):  # the plug-in is missing or has another version now
            continue
        # The processes of a training run work in parallel: count the seconds of each.
        machines = (record.execution.get("accelerate_config") or {}).get("num_machines", 1)
        processes = int(record.execution.get("processes", 1) * machines) if trains else 1
        group = group_of(record.kind, record.axes)
        found.append(Finished(record.kind, cost, record.seconds * processes, planned, group))
    return found


def _ran_on(record: Record, threads: int) -> str | None:
    names = record.environment.get("accelerators") or []
    if names and record.execution.get("device") != "cpu":
        return device_type_of(names[0])
    here = (record.environment.get("cpu"), record.execution.get("threads"))
    return "cpu" if here == (cpu_name(), threads) else None


def _costs(record: Record) -> tuple[StepCost, StepCost]:
    """Return the cost of the processed tokens, and the cost that a plan predicts."""
    step = record.step
    spec = spec_of(step)
    planned = spec.cost(step)
    if not isinstance(spec, CellSpec):
        return planned, planned
    tokens = record.result["passed_tokens"]
    share = min(1.0, tokens / max(1, planned.tokens + planned.decoding.tokens))
    cost = replace(planned.scaled(share), decoding=planned.decoding.scaled(share))
    if spec.benchmark.scores_text:  # the fraction of losses reused from other cells varies by run
        return cost, cost
    return cost, planned.scaled(shares_of_text([step]).get(step.fingerprint, 1.0))


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
    return DEVICE_TYPES[device]


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
    """Return the CPU seconds of the fastest call within `_CALIBRATION_SECONDS`."""
    work()
    best, end = float("inf"), time.monotonic() + _CALIBRATION_SECONDS
    while time.monotonic() < end:
        begun = time.thread_time()  # excludes other threads and other processes
        work()
        best = min(best, time.thread_time() - begun)
    return max(best, 1e-9)


def _fit(finished: Sequence[Finished]) -> tuple[Rates, float]:
    """Fit rates and fixed seconds per step to finished steps.

    Minimise the squared relative errors with non-negative weights. Then scale the weights so that
    the sums of predicted and measured seconds are equal.
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
    calibration = Calibration()
    for one in finished:
        calibration.learn(one.group, speed.seconds(one.kind, one.planned), one.seconds)
    return calibration
