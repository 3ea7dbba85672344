"""Parameters that a method adds to the model's weights, and the rotary module of learned_rope.

In this module a trained logarithm multiplies each frequency of the start. Layers of transformers
receive the same cosines, so layers and heads with frequencies of their own get the positions
instead. A hook before each layer's attention computes the layer's cosines.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from lce_core.attention.rotary import RequestRotary
from lce_core.methods import Applied
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable

if TYPE_CHECKING:
    from lce_core.methods.learned_rope import LearnedRope

LEARNED = "extension.safetensors"
"""Name of the file in a checkpoint with the trained parameters that the method adds."""

_ROTARY = "model.rotary_emb."


def make_rotary(applied: Applied, *, identity: bool, seed: int) -> RequestRotary:
    """Create the method's rotary module; `seed` draws the parameters that the method adds."""
    method, geometry, *_ = applied
    if method.rotary is None:
        return RequestRotary(geometry.rotary_dim, identity=identity)
    module, _, name = method.rotary.partition(":")
    made = getattr(importlib.import_module(module), name)
    rotary: RequestRotary = made(*applied, seed=seed)
    return rotary


def save_learned(weights: Mapping[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """Write the parameters that the method adds to `folder`; return all other weights."""
    learned = {
        name.removeprefix(_ROTARY): tensor.detach().contiguous()
        for name, tensor in weights.items()
        if name.startswith(_ROTARY)
    }
    if learned:
        save_file(learned, folder / LEARNED)
    return {name: tensor for name, tensor in weights.items() if not name.startswith(_ROTARY)}


class LearnedRotary(RequestRotary):
    """Rotary module with one trained logarithm per pair of all layers, a layer or a head."""

    def __init__(
        self,
        method: LearnedRope,
        geometry: RopeGeometry,
        _lengths: ContextLengths,
        num_layers: int,
        *,
        seed: int = 0,  # noqa: ARG002 - all parameters start from 0
    ) -> None:
        super().__init__(geometry.rotary_dim, identity=False)
        self.factor, self.shared = method.learning_rate_factor, method.sharing == "all"
        layers = 1 if self.shared else num_layers
        heads = geometry.num_kv_heads if method.sharing == "head" else 1
        self.own_tables = 0 if self.shared else heads
        self.log_multipliers = nn.Parameter(torch.zeros(layers, heads, geometry.num_pairs))
        self._start = self._learned = torch.empty(0)
        # A tuple, because the attention modules are parts of the model and not of this module.
        self._attentions: tuple[Any, ...] = ()

    def attach(self, layers: Iterable[Any]) -> None:
        if not self.shared:
            self._attentions = tuple(layer.self_attn for layer in layers)
            for attention in self._attentions:
                attention.register_forward_pre_hook(self._rotate_own, with_kwargs=True)

    def begin(self, table: RopeTable, num_tokens: int) -> None:
        """Use the frequencies of `table` times the learned multipliers, and all else of `table`.

        `self.table` gets a row for each layer and head, or one if all rows are equal.
        """
        self._start = torch.from_numpy(table.inv_freq)
        self._learned = self.frequencies().detach()
        rows = self._learned.flatten(0, 1).cpu().numpy()
        inv_freq = rows if (rows != rows[0]).any() else rows[0]
        super().begin(replace(table, inv_freq=inv_freq), num_tokens)

    def constants(self, device: torch.device) -> Tensor:
        return self._learned.to(device)

    def frequencies(self) -> Tensor:
        """Return inverse frequencies in float64: (1 or layers, 1 or key-value heads, pairs)."""
        logs = self.log_multipliers.double()
        return self._start.to(logs.device, non_blocking=True) * (self.factor * logs).exp()

    def turns(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosine and sine as RequestRotary does; gradients reach the multipliers.

        If layers or heads differ, return the positions twice: each layer computes its own cosines.
        """
        learned = self.frequencies() if torch.is_grad_enabled() else self._learned
        learned = learned.to(x.device)
        positions = position_ids[..., None].double()
        if self.shared:
            return self._of(positions, learned[0, 0], x)
        # An attribute of the module, and not an index into `learned`, lets torch.compile trace all
        # layers as one graph.
        for attention, own in zip(self._attentions, learned, strict=True):
            attention.lce_frequencies = own
        return positions, positions

    def _rotate_own(
        self, attention: Any, args: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        positions, _ = kwargs["position_embeddings"]
        inv_freq = attention.lce_frequencies[:, None]
        own = self._of(positions[:, None], inv_freq, kwargs["hidden_states"])
        return args, {**kwargs, "position_embeddings": own}
