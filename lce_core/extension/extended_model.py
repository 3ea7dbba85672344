"""A stock decoder of Hugging Face transformers with a context-extension method applied.

A request is a prompt with its answer, a window of text to score, or a training row. `begin_request`
chooses the RoPE table from the request's length alone. Passes with and without a cache therefore
agree, and no result depends on earlier requests. The table is float64 and not a module buffer, so
casting a model never rounds it. The square of the table's attention factor multiplies the softmax
scaling, which acts on whole heads even with partial rotary.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache, PreTrainedModel

from lce_core.attention import LayerAttention
from lce_core.attention.cache import PreallocatedCache, RaggedCache
from lce_core.attention.flash import HALF
from lce_core.attention.registered import ATTENTION
from lce_core.attention.rotary import RequestRotary
from lce_core.attention.rotation import check_heads
from lce_core.attention.schemes import FullCausal, SlidingWindow
from lce_core.attention.token_graphs import CudaRecorder, TokenGraphs
from lce_core.errors import SpecError, UnavailableError
from lce_core.extension.insertion import Inserter
from lce_core.extension.kernels import activate
from lce_core.methods import Applied, Method, as_stock, begins_alike, layers_of
from lce_core.methods._training_positions import row_positions, why_not_skip
from lce_core.models import LanguageModel
from lce_core.recipe import TrainPositions
from lce_core.rope import ContextLengths, RopeTable


@dataclass(eq=False, repr=False)
class ExtendedModel:
    """A model with a method applied; created by `lce_core.extension.extending.extend`."""

    model: PreTrainedModel
    method: Method
    base_model: LanguageModel
    target: int
    kernel: str
    rotary: RequestRotary
    training: bool
    inserter: Inserter | None
    """Inserts the method's own tokens (landmarks) into texts; None if the method has none."""
    positions: TrainPositions

    def __post_init__(self) -> None:
        self.geometry, config = self.base_model.geometry, self.model.config
        self.trained = self.geometry.trained_context
        self._num_layers: int = config.num_hidden_layers
        # Gemma 3 divides scores by the square root of its own number, Granite has its own factor.
        divisor = getattr(config, "query_pre_attn_scalar", self.geometry.head_dim)
        self._score_factor = getattr(config, "attention_multiplier", divisor**-0.5)
        self._graphs: TokenGraphs | None = None

    @property
    def coarse(self) -> bool:
        """True for half-precision weights: batching can then change the most likely next token."""
        return self.model.dtype in HALF

    def begins_alike(self, shorter: int, longer: int) -> bool:
        """Return True if requests of both lengths give the same results for the shorter text."""
        if self.coarse:  # rounding can change scores
            return False
        return begins_alike(self._applied(shorter), self._applied(longer))

    def _applied(self, num_tokens: int) -> Applied:
        lengths = ContextLengths(self.trained, self.target, num_tokens)
        return Applied(self.method, self.geometry, lengths, self._num_layers)

    def begin_request(self, num_tokens: int) -> None:
        """Set RoPE table and attention for a text of `num_tokens`, without inserted tokens."""
        activate(self.kernel)
        applied = self._applied(num_tokens)
        self._row_lengths = applied.lengths
        if self._row_positions(0) is not None:
            applied = applied.at(self.target)
            if why := why_not_skip(applied):
                raise SpecError(
                    f"{self.method.plugin_name}.training_positions",
                    f"positions for a method that {why}",
                    "positions only from a method that changes frequencies shared by all heads",
                    "return None from training_positions, or remove the attention scheme",
                )
        reach = self.method.reach(self.geometry, applied.lengths)
        if reach is not None and num_tokens > reach:
            raise UnavailableError(
                f"request of {num_tokens} tokens",
                f"the method {self.method.plugin_name!r}, which supports up to {reach} tokens",
                f"at most {reach} tokens of prompt plus answer",
                "evaluate shorter contexts, or raise target_context",
            )
        layers = checked_layers(applied, self.base_model, training=self.training)
        if self.positions != "exact" and self.positions != "pose":
            rounded = {
                one: replace(one, table=replace(one.table, positions=self.positions))
                for one in {*layers}
            }
            layers = tuple(rounded[one] for one in layers)
        rotated = next((one.table for one in layers if one.table.rotates), layers[0].table)
        self.rotary.begin(rotated, self._expanded(num_tokens))
        self.rotary.factors = tuple(one.table.attention_factor for one in layers)
        decoder: Any = self.model.model
        for module, own in zip(decoder.layers, layers, strict=True):
            scaling = self._score_factor * own.table.attention_factor**2
            module.self_attn.scaling = scaling
            module.self_attn.lce_scheme = own.scheme and (own.scheme, own.table, own.log_base)

    def request_key(self, num_tokens: int) -> tuple[object, ...]:
        applied = self._applied(num_tokens)
        layers = checked_layers(applied, self.base_model, training=self.training)
        return tuple(layer.key for layer in layers)

    def cut_back(self, cache: DynamicCache, num_tokens: int) -> None:
        surplus = cache.get_seq_length() - self._expanded(num_tokens)
        if surplus:
            cache.crop(-surplus)

    def new_cache(self, num_tokens: int) -> PreallocatedCache:
        """Return an empty key-value cache for the texts of this request and their answers."""
        return PreallocatedCache(self._expanded(num_tokens))

    def _expanded(self, num_tokens: int) -> int:
        return self.inserter.length(num_tokens) if self.inserter else num_tokens

    def replay_tokens(self, recorder: CudaRecorder) -> None:
        self._graphs = TokenGraphs(self.model.get_decoder(), self.rotary, recorder)

    @property
    def replayed_tokens(self) -> int:
        return self._graphs.replayed_tokens if self._graphs else 0

    def begin_rows(
        self,
        seeds: NDArray[np.uint64],
        bounds: torch.Tensor | None = None,
        positions: NDArray[np.int64] | None = None,
    ) -> None:
        """Prepare the next forward pass, over training rows with these seeds.

        `bounds` are `PackedRows.document_bounds`, if tokens see only their own document. Positions
        (rows, tokens) of None are drawn if they are random. Attention schemes ignore them, and
        count from the start of each document if there are bounds.
        """
        decoder: Any = self.model.model
        for module in decoder.layers:
            module.self_attn.lce_documents = bounds
        if positions is not None:
            self.rotary.begin_rows(seeds, positions)
            return
        drawn = [self._row_positions(int(seed)) for seed in seeds]
        rows = [positions for positions in drawn if positions is not None]
        self.rotary.begin_rows(seeds, np.stack(rows) if rows else None)

    def _row_positions(self, seed: int) -> NDArray[np.int64] | None:
        if not self.training:
            return None
        pose = self.positions == "pose"
        return row_positions(self.method, self._row_lengths, seed, pose=pose)

    def hidden_states(self, ids: torch.Tensor, cache: DynamicCache | None = None) -> torch.Tensor:
        """Return last hidden states (batch, tokens, hidden_size); each predicts the next token.

        `ids` (batch, tokens) lack the tokens in the cache, which is extended in place.
        """
        if self.inserter is None:
            return self._decode(ids, cache)
        cached = 0 if cache is None else cache.get_seq_length()
        expanded, predicting = self.inserter.expand(ids, cached)
        return self._decode(expanded, cache)[:, predicting]

    @property
    def packs(self) -> bool:
        """True if `packed_states` works: without attention schemes and inserted tokens."""
        implementation = self.model.config._attn_implementation
        return implementation != ATTENTION and self.inserter is None

    @property
    def mixes_lengths(self) -> bool:
        """True if texts of several lengths can be decoded together in a RaggedCache."""
        # Texts of different lengths would get inserted tokens at different decoding steps.
        return self.inserter is None and not self.coarse

    def packed_states(
        self, ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, cache: DynamicCache
    ) -> torch.Tensor:
        """Process tokens of several texts as one row; return hidden states (tokens, hidden_size).

        `positions` (tokens,) count in each token's own text. `mask` (tokens, cached + tokens) is
        True for the keys that a token sees, its own included.
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


def checked_layers(
    applied: Applied, base_model: LanguageModel, *, training: bool
) -> tuple[LayerAttention, ...]:
    """Return the method's RoPE table and attention scheme of each layer.

    Either no layer or every layer has a scheme. If layers differ, or the table has one base per
    head, layers without a scheme get FullCausal. The base model's `local` layers keep their window
    and frequencies, its unrotated layers full attention without rotation.
    """
    (method, geometry, *_), local = applied, base_model.local
    layers = layers_of(applied, training=training)
    distinct = {*layers}
    for layer in distinct:
        num_frequencies = layer.table.inv_freq.shape[-1]
        if num_frequencies != geometry.num_pairs:
            raise SpecError(
                method.plugin_name,
                f"{num_frequencies} frequencies",
                f"one frequency for each of the {geometry.num_pairs} pairs",
                "compute as many frequencies as geometry.num_pairs",
            )
        check_heads(layer.table, geometry.num_heads, geometry.num_kv_heads)
    if len(distinct) > 1 and method.rotary is not None:
        raise SpecError(
            f"{method.plugin_name}.layer",
            "layers with frequencies or attention of their own, and learned frequencies",
            "the same learned frequencies in all layers",
            "remove `layer` or `rotary` from the method",
        )
    # Also without `local.layers`, because stock attention has no sinks.
    is_stock = local is None and as_stock(applied, training=training)
    kept = dict.fromkeys(
        geometry.unrotated, LayerAttention(RopeTable(np.zeros(geometry.num_pairs)))
    )
    if local is not None:
        table = RopeTable(geometry.inv_freq(), geometry.attention_factor)
        if local.theta is not None:
            table = RopeTable(replace(geometry, theta=local.theta, scaling=None).inv_freq())
        kept |= dict.fromkeys(local.layers, LayerAttention(table, SlidingWindow(local.window)))
    layers = tuple(kept.get(index, layer) for index, layer in enumerate(layers))
    if is_stock:
        return layers
    full = {one: one if one.scheme else replace(one, scheme=FullCausal()) for one in {*layers}}
    return tuple(full[layer] for layer in layers)
