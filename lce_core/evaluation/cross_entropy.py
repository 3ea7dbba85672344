"""Cross-entropy of a linear head in blocks: the (tokens, vocabulary) logits never exist as a whole.

The forward pass computes the loss and its gradients together; the backward pass only multiplies
them. Sums over blocks are fp32 (fp64 for fp64 input). N tokens, d hidden size, V vocabulary.
"""

from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear
from transformers import PreTrainedModel


class Head(NamedTuple):
    """The last layer of a language model: states (..., d) to logits (..., V)."""

    weight: Tensor
    """(V, d)"""
    bias: Tensor | None = None
    """(V,)"""
    cap: float | None = None
    """Soft cap c: logits x become c tanh(x / c), as in Gemma 2."""

    @classmethod
    def of(cls, model: PreTrainedModel) -> Self:
        head: Any = model.get_output_embeddings()
        cap = getattr(model.config, "final_logit_softcapping", None)
        return cls(head.weight, getattr(head, "bias", None), cap)

    def logits(self, states: Tensor) -> Tensor:
        return self.capped(linear(states, self.weight, self.bias))

    def capped(self, logits: Tensor) -> Tensor:
        """Apply the cap in place."""
        return logits if self.cap is None else logits.div_(self.cap).tanh_().mul_(self.cap)


def linear_cross_entropy(
    hidden: Tensor, head: Head, targets: Tensor, weights: Tensor, block: int = 1024
) -> Tensor:
    """Return the weighted sum of negative log-likelihoods, sum_i weights[i] * nll[i], in nats.

    Under autocast the matrix products use the autocast dtype; softmax and sums do not. `hidden` is
    (N, d), `targets` (N,) int64, and `weights` (N,) the factor of each token's loss, without a
    gradient. The logits of `block` tokens exist at a time.
    """
    loss: Tensor = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden, head.weight, head.bias, targets, weights, block, _product_dtype(hidden), head.cap
    )
    return loss


@torch.no_grad()
def token_scores(
    hidden: Tensor,
    head: Head,
    targets: Tensor,
    block: int = 1024,
    *,
    no_text: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return each target's NLL in nats (N,), and whether it is the most likely token (N,).

    `no_text` is the token that the method inserts into texts. It keeps its probability but is never
    the most likely one, because decoding never chooses it.
    """
    dtype = _product_dtype(hidden)
    parts = [hidden.new_zeros(0, dtype=_sum_dtype(hidden))]
    hits = [targets.new_zeros(0, dtype=torch.bool)]
    with torch.autocast(hidden.device.type, enabled=False):
        weight = head.weight.to(dtype)
        for start in range(0, hidden.shape[0], block):
            rows = slice(start, start + block)
            logits = _logits(hidden[rows].to(dtype), weight, head.bias, _sum_dtype(hidden))
            logits = head.capped(logits)
            parts.append(logits.logsumexp(-1) - _at(logits, targets[rows]))
            if no_text is not None:
                logits[:, no_text] = -torch.inf
            hits.append(logits.argmax(-1) == targets[rows])
    return torch.cat(parts), torch.cat(hits)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        weights: Tensor,
        block: int,
        dtype: torch.dtype,
        cap: float | None,
    ) -> Tensor:
        wanted = ctx.needs_input_grad[:3]
        total = _sum_dtype(hidden)
        loss = hidden.new_zeros((), dtype=total)
        d_hidden = torch.empty_like(hidden) if wanted[0] else None
        d_weight = torch.zeros_like(weight, dtype=total) if wanted[1] else None
        d_bias = torch.zeros_like(bias, dtype=total) if bias is not None and wanted[2] else None
        with torch.autocast(hidden.device.type, enabled=False):
            head = weight.to(dtype)
            for start in range(0, hidden.shape[0], block):
                rows = slice(start, start + block)
                part, factor = hidden[rows].to(dtype), weights[rows].to(total)
                logits = Head(weight, bias, cap).capped(_logits(part, head, bias, total))
                # The slope of c tanh(x / c) is 1 - tanh(x / c)^2.
                steepness = 1.0 if cap is None else 1 - (logits / cap).square()
                peak = logits.logsumexp(-1)
                loss += (factor * (peak - _at(logits, targets[rows]))).sum()
                if not any(wanted):
                    continue
                # d nll / d logits = softmax - one-hot, computed in the memory of the logits.
                slope = logits.sub_(peak[:, None]).exp_()
                slope[torch.arange(len(slope), device=slope.device), targets[rows]] -= 1
                slope *= factor[:, None] * steepness
                if d_bias is not None:
                    d_bias += slope.sum(0)
                slope = slope.to(dtype)
                if d_hidden is not None:
                    d_hidden[rows] = slope @ head
                if d_weight is not None:
                    d_weight += slope.T @ part
        ctx.save_for_backward(
            d_hidden,
            None if d_weight is None else d_weight.to(weight.dtype),
            None if d_bias is None or bias is None else d_bias.to(bias.dtype),
        )
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_loss: Tensor) -> tuple[Tensor | None, ...]:
        gradients = (
            None if saved is None else saved * d_loss.to(saved.dtype) for saved in ctx.saved_tensors
        )
        return (*gradients, None, None, None, None, None)


def _logits(part: Tensor, head: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    logits = (part @ head.T).to(dtype)
    return logits if bias is None else logits.add_(bias.to(dtype))


def _at(logits: Tensor, targets: Tensor) -> Tensor:
    return logits.gather(-1, targets[:, None]).squeeze(-1)


def _sum_dtype(hidden: Tensor) -> torch.dtype:
    return torch.float64 if hidden.dtype == torch.float64 else torch.float32


def _product_dtype(hidden: Tensor) -> torch.dtype:
    device = hidden.device.type
    if torch.is_autocast_enabled(device) and hidden.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return hidden.dtype
