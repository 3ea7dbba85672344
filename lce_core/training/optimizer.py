"""Update the weights: AdamW and gradient sums in bf16, and the average of the weights.

AdamW with bf16 weights and moments needs 8 bytes per parameter, gradient included, instead of 16.
Arithmetic is fp32; weights and both moments are rounded stochastically, up with a probability equal
to the relative distance from the lower bf16 neighbour. So updates far below the last bit of a
weight still accumulate, and the second moment decays: multiplying by 0.999 changes a number by less
than half a unit in the last place of bf16, which rounding to nearest would drop.

Sources: Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2; Zamirai et al. 2020,
arXiv:2010.06192 (stochastic rounding of weight updates); Salmon et al. 2011,
doi:10.1145/2063384.2063405 (Philox).
"""

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lce_core.training.sharding import local, local_rows

_MASK = (1 << 32) - 1
_ROUNDS = 10


def philox(counter: Sequence[Tensor], key: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return four random words of 32 bits for each counter: Philox 4x32 with ten rounds.

    CPU and GPU draw the same. Counter (four) and key (two) are int64 tensors in 0..2^32-1.
    """
    one, two, three, four = counter
    low, high = key
    for _ in range(_ROUNDS):
        # torch multiplies no unsigned integers. An int64 product overflows to the same 64 bits as
        # an unsigned one; the masks drop the sign bits that the shift copies. The low half of a
        # product is masked after the next round's xor.
        first, third = one * 0xD2511F53, three * 0xCD9E8D57
        one, two = (third >> 32 ^ two ^ low) & _MASK, third
        three, four = (first >> 32 ^ four ^ high) & _MASK, first
        low, high = (low + 0x9E3779B9) & _MASK, (high + 0xBB67AE85) & _MASK
    return one, two & _MASK, three, four & _MASK


def noise(words: Tensor, size: int) -> tuple[Tensor, ...]:
    """Draw four uniform integers in 0..65535 for each element: int32 of shape (size,).

    `words` (5,) are the index of the first element, two further words of the counter, and the key.
    """
    start, *others = words.unbind()
    index = start + torch.arange(size, device=words.device)
    drawn = philox((index & _MASK, index >> 32, *others[:2]), others[2:])
    return tuple((word & 0xFFFF).int() for word in drawn)


def rounded(values: Tensor, drawn: Tensor) -> Tensor:
    """Round fp32 to bf16, up or down by `drawn` (0..65535); infinities and NaN stay unchanged."""
    # bf16 is the upper half of fp32. Adding a uniform integer to the lower half carries into the
    # upper half with a probability proportional to the lower half; the mask then truncates.
    bits = values.view(torch.int32)
    carried = ((bits + drawn) & ~0xFFFF).view(torch.float32)
    return torch.where(values.isfinite(), carried, values).bfloat16()


Formula = Callable[..., tuple[Tensor, ...]]
"""Gets targets and gradient in fp32, then numbers; returns the targets' new values."""
_BLOCK = {"cpu": 1 << 17, "cuda": 1 << 22}
"""Elements per block if uncompiled: 1 MiB stays in a CPU's cache, 32 MiB need few GPU launches."""


class RoundedUpdate:
    """Compute new values of tensors in fp32; write them, rounded stochastically if in bf16.

    The noise of an element depends on seed, parameter name, step, pass and index in the whole
    tensor, so results do not depend on the number of processes, blocks or interruptions.
    """

    def __init__(self, formula: Formula, seed: int, *, compiled: bool) -> None:
        self._formula, self._seed, self._compiled = formula, seed, compiled
        self._write = torch.compile(_write, dynamic=True) if compiled else _write

    def __call__(
        self,
        name: str,
        targets: Sequence[Tensor],
        gradient: Tensor,
        when: tuple[int, int],
        numbers: Sequence[float] = (),
    ) -> None:
        """Update up to four contiguous targets in place.

        `when` is training step and pass; no two updates of a parameter may have the same pair. All
        tensors are sharded alike.
        """
        # A name's CRC-32 is, unlike its hash, equal in every process.
        mixed = np.random.SeedSequence([self._seed, zlib.crc32(name.encode())])
        key = mixed.generate_state(2).tolist()
        start = local_rows(gradient).start * gradient.shape[1:].numel()
        flat = [local(each.detach()).view(-1) for each in targets]
        added = local(gradient.detach()).reshape(-1)
        # Do not wait for the device: gradients are summed during the backward pass.
        given = torch.tensor(numbers, dtype=torch.float32).to(added.device, non_blocking=True)
        size = max(1, len(added)) if self._compiled else _BLOCK[added.device.type]
        for low in range(0, len(added), size):
            block = slice(low, low + size)
            words = torch.tensor([start + low, *when, *key])
            self._write(
                self._formula,
                [each[block] for each in flat],
                added[block],
                given,
                words.to(added.device, non_blocking=True),
            )


def _write(
    formula: Formula, targets: list[Tensor], gradient: Tensor, numbers: Tensor, words: Tensor
) -> None:
    floats = [each.float() for each in (*targets, gradient)]
    values = formula(*floats, *numbers.unbind())
    drawn = noise(words, len(gradient))
    for target, value, places in zip(targets, values, drawn, strict=False):
        target.copy_(rounded(value, places) if target.dtype == torch.bfloat16 else value)


class RoundedAdamW(torch.optim.Optimizer):
    """AdamW with stochastic rounding; its state has the same keys as that of torch.optim.AdamW."""

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        *,
        lr: float,
        betas: tuple[float, float],
        weight_decay: float,
        seed: int,
        compiled: bool,
    ) -> None:
        settings = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "eps": 1e-8}
        super().__init__(list(parameters.values()), settings)
        self._names = {tensor: name for name, tensor in parameters.items()}
        self._apply = RoundedUpdate(_adamw, seed, compiled=compiled)
        self._scale = 1.0

    @torch.no_grad()
    def clip(self, limit: float, total: Callable[[float], float]) -> float:
        """Return the global norm; let the next `step` clip it. `total` sums over all processes."""
        # The gradients stay unchanged: scaling them in bf16 would round once more.
        gradients = [parameter.grad for parameter in self._names if parameter.grad is not None]
        norms = [torch.linalg.vector_norm(local(part), dtype=torch.float32) for part in gradients]
        norm = math.sqrt(total(float(torch.stack(norms).double().square().sum())))
        # The 1e-6 is that of torch.nn.utils.clip_grad_norm_.
        self._scale = min(1.0, limit / (norm + 1e-6))
        return norm

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "losses are computed by the trainer"
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)

    def _update(self, parameter: Tensor, group: Mapping[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        state["step"] += 1
        count = int(state["step"])
        (beta1, beta2), rate = group["betas"], group["lr"]
        assert parameter.grad is not None
        self._apply(
            self._names[parameter],
            (state["exp_avg"], state["exp_avg_sq"], parameter),
            parameter.grad,
            (count, 0),
            (
                self._scale,
                1 - beta1,
                beta2,
                1 - beta2,
                1 - rate * group["weight_decay"],
                rate / (1 - beta1**count),
                math.sqrt(1 - beta2**count),
                group["eps"],
            ),
        )


def _adamw(
    first: Tensor, second: Tensor, weights: Tensor, gradient: Tensor, *numbers: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    scale, fresh1, beta2, fresh2, kept, rate, root, eps = numbers
    gradient = gradient * scale
    first = first + fresh1 * (gradient - first)
    second = second * beta2 + fresh2 * gradient * gradient
    # Decay first, then the bias-corrected step, as in torch.optim.AdamW.
    return first, second, weights * kept - rate * first / (second.sqrt() / root + eps)


class GradientSums:
    """Sum each parameter's gradients over the micro-batches of a training step, in bf16.

    Autograd would accumulate with rounding to nearest: after a few hundred micro-batches, a new
    gradient is smaller than half a unit in the last place of the sum and would be lost.
    """

    def __init__(self, parameters: Mapping[str, Tensor], seed: int, *, compiled: bool) -> None:
        self._parameters = parameters
        self._add = RoundedUpdate(_sum, seed, compiled=compiled)
        self._step = 0
        self._sums: dict[str, tuple[Tensor, int]] = {}
        for name, parameter in parameters.items():
            parameter.register_post_accumulate_grad_hook(partial(self._take, name))

    def begin(self, step: int) -> None:
        self._step = step
        self._sums.clear()

    def give_back(self) -> None:
        for name, (total, _) in self._sums.items():
            self._parameters[name].grad = total
        self._sums.clear()

    @torch.no_grad()
    def _take(self, name: str, parameter: Tensor) -> None:
        gradient, parameter.grad = parameter.grad, None
        assert gradient is not None
        if name not in self._sums:
            self._sums[name] = gradient, 1
            return
        total, passes = self._sums[name]
        # The optimiser's noise has pass 0.
        self._add(name, (total,), gradient, (self._step, passes))
        self._sums[name] = total, passes + 1


def _sum(total: Tensor, gradient: Tensor) -> tuple[Tensor]:
    return (total + gradient,)


class ExponentialMovingAverage:
    """Moving average of the weights: ema <- decay * ema + (1 - decay) * weights.

    It has no bias correction, because fine-tuning starts from a trained base model.
    """

    def __init__(self, parameters: Mapping[str, Tensor], decay: float) -> None:
        self._parameters, self._decay = parameters, decay
        # fp32 also for bf16 weights, whose last bit is larger than what a step moves the average.
        self.tensors = {
            name: tensor.detach().to(torch.float32, copy=True)
            for name, tensor in parameters.items()
        }

    @torch.no_grad()
    def update(self) -> None:
        for name, tensor in self.tensors.items():
            tensor.lerp_(self._parameters[name].detach().to(tensor.dtype), 1 - self._decay)

    @torch.no_grad()
    def apply(self) -> None:
        for name, tensor in self.tensors.items():
            self._parameters[name].copy_(tensor)
