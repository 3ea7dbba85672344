"""Carries a context-extension method out on a stock decoder of Hugging Face transformers.

Methods that only change frequencies get a rotary module that reads the table of the request at
hand; layers rotate in float32 at least, SDPA or flash attention stays untouched. Tables with a
base per head and attention schemes get the same module in its identity form (cos = 1, sin = 0), so
that the cache holds keys before rotation, and the registered attention function, which calls the
scheme's kernel. No modelling file is forked and no forward is replaced; one function is, see
`lce_core.attention.layers`. Tokens that a method inserts are fed between those of the text and
taken out of the answer, so callers count and see tokens of the text only.

A request fixes its table from lengths alone (`begin_request`): cached equals uncached, and no
result depends on what was asked before. The table stays float64 outside the module's buffers, so
casting a model never rounds it. The attention factor of a table goes into the softmax scaling,
where it acts on a whole head also under partial rotary.
"""

from __future__ import annotations

import copy
import importlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from lce_core.attention import AttentionScheme
from lce_core.attention.cache import PreallocatedCache, RaggedCache
from lce_core.attention.layers import keep_precision
from lce_core.attention.registered import ATTENTION
from lce_core.attention.rotary import RequestRotary
from lce_core.attention.rotation import check_heads
from lce_core.attention.schemes import FullCausal
from lce_core.attention.stock import STOCK
from lce_core.attention.token_graphs import Recorder, TokenGraphs
from lce_core.errors import SpecError, UnavailableError
from lce_core.extension.compatibility import check_model
from lce_core.extension.insertion import Inserter, reserve_token
from lce_core.extension.kernels import HALF, scheme_kernel, stock_kernel
from lce_core.methods import Method, begins_alike
from lce_core.models import LanguageModel
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from lce_core.rope.architectures import ARCHITECTURES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import DynamicCache, PreTrainedModel

    from lce_core.recipe import Kernel, Positions, Rotation

LEARNED = "extension.safetensors"
"""File of a checkpoint that holds what a method has learned beside the model's weights."""

_ROTARY = "model.rotary_emb."


class ExtendedModel:
    """A model in the hands of a method; made by `extend`."""

    def __init__(
        self,
        model: PreTrainedModel,
        method: Method,
        geometry: RopeGeometry,
        target: int,
        kernel: str,
        rotary: RequestRotary,
        *,
        training: bool = False,
        inserter: Inserter | None = None,
        positions: Positions = "exact",
    ) -> None:
        self.model, self.method, self.geometry = model, method, geometry
        self.trained, self.target = geometry.trained_context, target
        self.kernel = kernel
        """Kernel family that computes attention, as recorded with results."""
        self.training = training
        self.inserter = inserter
        """Puts the method's own tokens into texts, if it has any."""
        self._positions = positions
        self._rotary = rotary
        self._hands_layers_over = model.config._attn_implementation in (ATTENTION, STOCK)
        self._graphs: TokenGraphs | None = None

    @property
    def coarse(self) -> bool:
        """Whether it computes in half precision, where what passes together may tip a choice."""
        return self.model.dtype in HALF

    def begins_alike(self, shorter: int, longer: int) -> bool:
        """Whether a longer request treats its first `shorter` tokens as a request of so many.

        Attention is causal, so what is computed for them then agrees up to rounding. In half
        precision rounding is no trifle, and nothing begins alike.

        Args:
          shorter: tokens of one request.
          longer: tokens of the other, both within the method's reach.
        """
        if self.coarse:
            return False
        first, second = (
            ContextLengths(self.trained, self.target, tokens) for tokens in (shorter, longer)
        )
        return begins_alike(self.method, self.geometry, first, second)

    def begin_request(self, num_tokens: int) -> None:
        """Fixes table and scheme for one request, before any forward pass of it.

        Args:
          num_tokens: prompt plus tokens to be generated, or a training sequence; inserted tokens
            are not counted.

        Raises:
          UnavailableError: more tokens than the method reaches.
        """
        lengths = ContextLengths(self.trained, self.target, num_tokens)
        reach = self.method.reach(self.geometry, lengths)
        if reach is not None and num_tokens > reach:
            raise UnavailableError(
                f"request of {num_tokens} tokens",
                f"{self.method.plugin_name}, which reaches {reach} tokens",
                "a request within the method's reach",
                "evaluate shorter contexts, or raise target_context",
            )
        table, scheme = _describe(self.method, self.geometry, lengths, training=self.training)
        if self._positions != "exact":
            table = replace(table, positions=self._positions)
        self._rotary.begin(table, self.inserter.length(num_tokens) if self.inserter else num_tokens)
        scaling = self.geometry.head_dim**-0.5 * table.attention_factor**2
        for attention in _attentions(self.model):
            attention.scaling = scaling
            attention.lce_scheme = None if scheme is None else (scheme, table)

    def request_key(self, num_tokens: int) -> tuple[object, ...]:
        """Equal for two requests that `begin_request` gives the same frequencies and attention."""
        lengths = ContextLengths(self.trained, self.target, num_tokens)
        table, scheme = _describe(self.method, self.geometry, lengths, training=self.training)
        return table.inv_freq.tobytes(), table.attention_factor, scheme

    def cut_back(self, cache: DynamicCache, num_tokens: int) -> None:
        """Leaves the first `num_tokens` tokens of the text in the cache."""
        kept = self.inserter.length(num_tokens) if self.inserter else num_tokens
        surplus = cache.get_seq_length() - kept
        if surplus:
            cache.crop(-surplus)

    def new_cache(self, num_tokens: int) -> PreallocatedCache:
        """An empty cache for texts of this request, answers included, which appends in place.

        Args:
          num_tokens: of text that there is room for from the start; more make more room.
        """
        room = self.inserter.length(num_tokens) if self.inserter else num_tokens
        return PreallocatedCache(room, hands_layers_over=self._hands_layers_over)

    def replay_tokens(self, recorder: Recorder) -> None:
        """Has passes of one token recorded once a request and replayed, where attention allows it.

        The flash-attn package is called by transformers, which leaves no place between.
        """
        if self._hands_layers_over:
            self._graphs = TokenGraphs(self.model.get_decoder(), self._rotary, recorder)

    def begin_rows(self, seeds: NDArray[np.uint64]) -> None:
        """Announces the training rows of the next forward pass.

        Args:
          seeds: (rows,) one for each row, from which whatever is random about it follows.
        """
        self._rotary.begin_rows(seeds)

    def hidden_states(self, ids: torch.Tensor, cache: DynamicCache | None = None) -> torch.Tensor:
        """Last hidden states (batch, tokens, hidden_size), each of which predicts the next token.

        Args:
          ids: (batch, tokens) token ids of the text, following those in the cache.
          cache: keys and values of the text so far, extended in place; None for a text at once.
        """
        if self.inserter is None:
            return self._decode(ids, cache)
        cached = 0 if cache is None else cache.get_seq_length()
        expanded, predicting = self.inserter.expand(ids, cached)
        return self._decode(expanded, cache)[:, predicting]

    @property
    def packs(self) -> bool:
        """Whether `packed_states` can be asked: attention is torch's own, over text alone."""
        return self.kernel == "sdpa" and self.inserter is None

    @property
    def mixes_lengths(self) -> bool:
        """Whether texts of several lengths may go on side by side, in a RaggedCache.

        In half precision no texts pass together, and inserted tokens come at other times in each.
        """
        return self._hands_layers_over and self.inserter is None and not self.coarse

    def packed_states(
        self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, cache: DynamicCache
    ) -> torch.Tensor:
        """Last hidden states (tokens, hidden_size) of tokens of several texts in one row.

        Args:
          ids: (tokens,) token ids.
          positions: (tokens,) place of each in its own text.
          mask: (tokens, cached + tokens) bool, which keys each one sees, its own included.
          cache: keys and values of the tokens so far, extended in place.
        """
        decoded = self.model.get_decoder()(
            input_ids=ids[None],
            position_ids=positions[None],
            attention_mask=mask[None, None],
            past_key_values=cache,
            use_cache=True,
        )
        hidden: torch.Tensor = decoded.last_hidden_state[0]
        return hidden

    def _decode(self, ids: torch.Tensor, cache: DynamicCache | None) -> torch.Tensor:
        if self._graphs and ids.shape[1] == 1 and isinstance(cache, PreallocatedCache):
            return self._graphs.states(ids, cache)
        positions = cache.next_positions(ids.device) if isinstance(cache, RaggedCache) else None
        decoded = self.model.get_decoder()(
            input_ids=ids,
            position_ids=positions,
            past_key_values=cache,
            use_cache=cache is not None,
        )
        hidden: torch.Tensor = decoded.last_hidden_state
        return hidden


def extend(
    model: PreTrainedModel,
    base_model: LanguageModel,
    method: Method,
    *,
    target: int,
    kernel: Kernel = "auto",
    compute_dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    training: bool = False,
    learned: Path | None = None,
    seed: int = 0,
    rotation: Rotation = "fp32",
    positions: Positions = "exact",
) -> ExtendedModel:
    """Puts `method` on `model` in place: rotary module, attention name, softmax scaling, token.

    The model should already have its final device and dtype, on which the kernel depends. The
    model's configuration object is replaced by a copy, so that other models are not affected.

    Args:
      model: stock model of `base_model`.
      base_model: gives the geometry.
      method: what to carry out.
      target: context in tokens that the study extends to.
      kernel: "sdpa", "flash", or the faster one of those that can run here.
      compute_dtype: what attention computes in, where autocast makes it another than the weights'.
      device: where it computes, if the model is not there yet.
      training: use the method's attention for training.
      learned: file of what the method has learned; None before training.
      seed: of what a method adds to the model and training starts from.
      rotation: layers rotate queries and keys in "fp32" at least, or, "stock", as transformers'
        own do, most of them with cosines rounded to the model's dtype.
      positions: what they are in angles.

    Raises:
      SpecError: model and geometry differ, parameters do not fit, or flash attention is demanded
        where it cannot run.
    """
    geometry = base_model.geometry
    check_model(model, geometry)
    keep_precision(model.config.model_type)
    lengths = ContextLengths(geometry.trained_context, target, target)
    method.check(geometry, lengths)
    _, scheme = _describe(method, geometry, lengths, training=training)
    asked = (device or model.device, compute_dtype or model.dtype, kernel)
    name = scheme_kernel(scheme, *asked) if scheme else stock_kernel(*asked)
    rotary = make_rotary(method, geometry, lengths, identity=scheme is not None, seed=seed)
    rounds = ARCHITECTURES[model.config.model_type].rounds_cosines
    rotary.stock_precision = rotation == "stock" and rounds
    if learned is not None:
        rotary.load_state_dict(load_file(learned))
    decoder: Any = model.model
    decoder.rotary_emb = rotary
    _own_configuration(model)
    model.set_attn_implementation(_registered(name, scheme, training=training))
    insertion = method.insertion(geometry)
    inserter = Inserter(insertion, reserve_token(model)) if insertion else None
    return ExtendedModel(
        model,
        method,
        geometry,
        target,
        name,
        rotary,
        training=training,
        inserter=inserter,
        positions=positions,
    )


def save_learned(weights: Mapping[str, torch.Tensor], folder: Path) -> dict[str, torch.Tensor]:
    """Writes what a method has learned to `folder`, if anything; the model's own weights."""
    learned = {
        name.removeprefix(_ROTARY): tensor.detach().contiguous()
        for name, tensor in weights.items()
        if name.startswith(_ROTARY)
    }
    if learned:
        save_file(learned, folder / LEARNED)
    return {name: tensor for name, tensor in weights.items() if not name.startswith(_ROTARY)}


def make_rotary(
    method: Method, geometry: RopeGeometry, lengths: ContextLengths, *, identity: bool, seed: int
) -> RequestRotary:
    """The rotary module of a method, with what it learns as it is before training."""
    if method.rotary is None:
        return RequestRotary(geometry.rotary_dim, identity=identity)
    module, _, name = method.rotary.partition(":")
    made = getattr(importlib.import_module(module), name)
    rotary: RequestRotary = made(method, geometry, lengths, seed=seed)
    return rotary


def _describe(
    method: Method, geometry: RopeGeometry, lengths: ContextLengths, *, training: bool
) -> tuple[RopeTable, AttentionScheme | None]:
    table = method.rope_table(geometry, lengths)
    attention = method.training_attention if training else method.attention
    scheme = attention(geometry, lengths)
    if table.inv_freq.shape[-1] != geometry.num_pairs:
        raise SpecError(
            method.plugin_name,
            f"{table.inv_freq.shape[-1]} frequencies",
            f"one frequency for each of the {geometry.num_pairs} pairs",
            "compute them from geometry.rotary_dim",
        )
    check_heads(table, geometry.num_heads, geometry.num_kv_heads)
    if scheme is None and table.inv_freq.ndim == 2:
        scheme = FullCausal()
    return table, scheme


def _registered(name: str, scheme: AttentionScheme | None, *, training: bool) -> str:
    """The name under which transformers finds the attention."""
    if scheme is not None:
        return ATTENTION
    # Training reads no text on.
    return STOCK if name == "sdpa" and not training else name


def _attentions(model: PreTrainedModel) -> list[Any]:
    decoder: Any = model.model
    return [layer.self_attn for layer in decoder.layers]


def _own_configuration(model: PreTrainedModel) -> None:
    # Modules share one configuration object, and so may other models.
    shared, own = model.config, copy.deepcopy(model.config)
    for module in model.modules():
        if getattr(module, "config", None) is shared:
            module.config = own  # type: ignore[assignment]
