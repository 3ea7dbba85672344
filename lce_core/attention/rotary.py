"""The rotary module of an extended model, and the rotation in transformers' layers.

The module replaces the model's own one. Its table is a plain float64 attribute, not a buffer, so
casting or saving the model keeps it.

In most architectures, float32 cosines would turn bf16 queries and keys, and so the cache, into
float32. A layer that `keep_precision` has patched computes products and sums in float32 and rounds
once to the dtype of queries and keys, like `lce_core.attention.rotation`.
"""

import functools
import importlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers.models.auto.configuration_auto import model_type_to_module_name

from lce_core.attention.rotation import angles_at, cosines, frequencies
from lce_core.errors import SpecError
from lce_core.rope import RopeTable
from lce_core.rope.architectures import ARCHITECTURES, Architecture

Applied = Callable[..., tuple[Tensor, Tensor]]


class RequestRotary(nn.Module):
    """Rotary embedding that returns the cosines and sines of the current request's RoPE table.

    `identity` makes them 1 and 0, for attention schemes, which rotate inside attention.
    """

    def __init__(self, rotary_dim: int, *, identity: bool) -> None:
        super().__init__()
        self.rotary_dim, self.identity = rotary_dim, identity
        self.table: RopeTable | None = None
        self.own_tables = 0
        """Tables of cosines that each layer computes for itself instead of sharing them."""
        self.factors: tuple[float, ...] = ()
        self.num_tokens = 0
        self._rows: NDArray[np.int64] | None = None
        self._skips_check = False
        self.stock_precision = False
        """True makes `forward` round cosines to the dtype of `x`, like transformers' own module."""
        self.repeats_cosines = False
        """`Architecture.repeats_cosines`: `forward` gives each cosine twice in a row."""
        self.rest_factor = 1.0
        """Factor of elements that are not rotated. It undoes the attention factor of a base model
        that transformers applies to rotated elements alone."""

    def attach(self, layers: Iterable[Any]) -> None:
        """Receive the model's layers; for subclasses whose layers rotate by different tables."""

    def begin(self, table: RopeTable, num_tokens: int) -> None:
        """Use `table` for texts of up to `num_tokens` tokens, the method's own included."""
        self.table, self.num_tokens, self._rows = table, num_tokens, None

    def begin_rows(
        self, seeds: NDArray[np.uint64], positions: NDArray[np.int64] | None = None
    ) -> None:
        """Receive the seeds (rows,) and the positions (rows, tokens) of the next pass's rows."""
        self._rows = positions

    def table_key(self) -> tuple[object, ...]:
        assert self.table is not None
        return self.table.inv_freq.tobytes(), self.factors, self.table.positions

    def constants(self, device: torch.device) -> Tensor:
        """Return the frequencies, of the shape that `turns` and recorded graphs read."""
        assert self.table is not None
        return frequencies(self.table, device)

    @contextmanager
    def without_position_check(self) -> Iterator[None]:
        """Skip the check of position_ids while CUDA graphs are recorded: it reads from the GPU."""
        self._skips_check = True
        try:
            yield
        finally:
            self._skips_check = False

    def check_length(self, length: int) -> None:
        if length > self.num_tokens:
            raise SpecError(
                "position_ids",
                f"{length} tokens",
                f"at most the {self.num_tokens} tokens of the request",
                "call begin_request with the number of prompt tokens plus new tokens",
            )

    def forward(
        self, x: Tensor, position_ids: Tensor, _layer_type: str | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return cosine and sine (batch or 1, tokens, rotary_dim), at least float32.

        With `identity` or `stock_precision` they have the dtype of `x`, with `identity` the shape
        (1, 1, rotary_dim).
        """
        if self.table is None:
            raise SpecError(
                "extended model",
                "a forward pass outside any request",
                "a call of begin_request before it",
                "call begin_request with the number of prompt tokens plus new tokens",
            )
        self._check(position_ids)
        if self.identity:
            one = torch.ones(1, 1, self.rotary_dim, dtype=x.dtype, device=x.device)
            # The attribute tells patched layers to skip the product; unpatched layers multiply by
            # one.
            one.rotates_nothing = True  # type: ignore[attr-defined]
            return self._marked(one), torch.zeros_like(one)
        return self.turns(x, position_ids)

    def turns(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return what `forward` returns without `identity`, for checked positions."""
        positions = position_ids
        if self._rows is not None:
            rows = torch.from_numpy(self._rows).to(x.device)
            positions = rows.gather(1, position_ids.expand(len(x), -1))
        return self._of(positions[..., None].double(), self.constants(x.device), x)

    def _of(self, positions: Tensor, inv_freq: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        kind = self.table.positions if self.table else "exact"
        precise = torch.promote_types(x.dtype, torch.float32)
        dtype = x.dtype if self.stock_precision else precise
        cos, sin = cosines(angles_at(positions, inv_freq, kind), dtype)
        if self.repeats_cosines:
            return self._marked(cos.repeat_interleave(2, dim=-1)), sin.repeat_interleave(2, dim=-1)
        return self._marked(torch.cat((cos, cos), dim=-1)), torch.cat((sin, sin), dim=-1)

    def _marked(self, cos: Tensor) -> Tensor:
        # For patched layers, to which transformers passes nothing else.
        if self.rest_factor != 1.0:
            cos.rest_factor = self.rest_factor  # type: ignore[attr-defined]
        return cos

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        # Casting the model moves trained parameters to a device but keeps their precision.
        def move(tensor: Tensor) -> Tensor:
            return tensor.to(fn(tensor).device)

        return super()._apply(move, recurse)  # type: ignore[no-untyped-call]

    def _check(self, position_ids: Tensor) -> None:
        if self._skips_check:
            return
        length = position_ids.shape[-1]
        # Reading values from a GPU waits for it. Attention schemes rely on consecutive positions,
        # so with `identity` check them (once per pass for all layers). Otherwise check only the
        # length on GPUs.
        if self.identity or position_ids.device.type == "cpu":
            broken = (position_ids.diff(dim=-1) != 1).any()
            gaps, last = torch.stack((broken.to(position_ids.dtype), position_ids.max())).tolist()
            if self.identity and gaps:
                raise SpecError(
                    "position_ids",
                    "gaps or restarts",
                    "consecutive positions in each row",
                    "put one document in each row, without padding",
                )
            length = last + 1
        self.check_length(length)


def _keep_dtype(stock: Applied, architecture: Architecture) -> Applied:
    def apply_rotary_pos_emb(
        query: Tensor,
        key: Tensor,
        cos: Tensor,
        sin: Tensor,
        unsqueeze_dim: int = 1,
    ) -> tuple[Tensor, Tensor]:
        width, rest = cos.shape[-1], getattr(cos, "rest_factor", 1.0)
        if getattr(cos, "rotates_nothing", False):
            # The attention kernel rotates the states itself, in pairs that are half a head apart.
            # Scores stay the same if queries and keys are reordered alike.
            if architecture.adjacent:
                query, key = _reordered(query, width), _reordered(key, width)
        elif cos.ndim == 4:
            # One table per key-value head, (batch, key-value heads, tokens, width).
            groups = (states.unflatten(1, (cos.shape[1], -1)) for states in (query, key))
            tables = cos[:, :, None], sin[:, :, None]
            query, key = (_rotated(own, *tables, architecture).flatten(1, 2) for own in groups)
        elif cos.dtype == query.dtype or torch.is_autocast_enabled(query.device.type):
            # As in most stock models; autocast rounds the attention inputs anyway.
            query, key = stock(query, key, cos, sin, unsqueeze_dim)
        else:
            cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
            query, key = (_rotated(states, cos, sin, architecture) for states in (query, key))
        if rest != 1.0:
            query, key = (
                torch.cat((states[..., :width], states[..., width:] * rest), dim=-1)
                for states in (query, key)
            )
        return query, key

    return apply_rotary_pos_emb


def _reordered(states: Tensor, width: int) -> Tensor:
    """Move the second elements of adjacent pairs among the first `width` behind the first ones."""
    halves = _halves(states[..., :width], adjacent=True)
    return torch.cat((*halves, states[..., width:]), dim=-1)


def _rotated(states: Tensor, cos: Tensor, sin: Tensor, architecture: Architecture) -> Tensor:
    # Activation checkpointing requires operations that change no tensor in place.
    width = cos.shape[-1]
    precise = states[..., :width].to(cos.dtype)
    first, second = _halves(precise, adjacent=architecture.adjacent)
    cos, _ = _halves(cos, adjacent=architecture.repeats_cosines)
    sin, _ = _halves(sin, adjacent=architecture.repeats_cosines)
    turned = first * cos - second * sin, second * cos + first * sin
    halves = [half.to(states.dtype) for half in turned]
    if architecture.adjacent:
        halves = [torch.stack(halves, dim=-1).flatten(-2)]
    return torch.cat([*halves, states[..., width:]], dim=-1)


def _halves(states: Tensor, *, adjacent: bool) -> tuple[Tensor, Tensor]:
    if adjacent:
        return states[..., ::2], states[..., 1::2]
    pairs = states.shape[-1] // 2
    return states[..., :pairs], states[..., pairs:]


# Patch each module once per process.
@functools.cache
def keep_precision(model_type: str) -> None:
    """Patch transformers' layers of this `model_type` of config.json.

    The function in the model's module is replaced, because layers offer no other hook.
    """
    folder = model_type_to_module_name(model_type)
    module: Any = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    module.apply_rotary_pos_emb = _keep_dtype(
        module.apply_rotary_pos_emb, ARCHITECTURES[model_type]
    )
