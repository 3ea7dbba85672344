"""Two-layer Llama over bytes and one-token needles, trained from scratch in about a minute.

The model has 0.26 M parameters and a context of 128 tokens. Texts contain key tokens: 8 families of
16. When the query token of a family occurs, the model must repeat the family's earlier key token.
Retrieval is exact at 128 tokens and collapses beyond about 256 tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from lce_core.evidence import calls
from lce_core.models import KeyVocabulary, ModelShape, Pretraining
from lce_core.models._stock import Llama, StockModel
from lce_core.registry import Source
from lce_core.rope import RopeGeometry

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

VERSION = 1
SOURCE = Source(paper="own", place="docs/performance.md, toy base model", reference="own")
EVIDENCE = (
    calls(
        StockModel.num_parameters,
        259_296,
        "392 x 96 + 2 x (4 x 96 x 96 + 3 x 96 x 256 + 2 x 96) + 96, counted by hand",
        parameters={},
    ),
)

NUM_BYTES = 256
ROW_TOKENS = 128
ROWS_PER_STEP = 16
TOKENS_PER_KEY = 24
"""A training row gets one key per this many tokens, but at most one key per family."""
ANSWER_WEIGHT = 3
"""Loss weight of the key token that answers a query; all other tokens have weight 1."""


class ToyLlama(Llama):
    """Byte-level Llama, so small that the study itself trains it, as one of its steps."""

    steps: int = Field(default=1000, gt=0)
    """Optimiser steps of pretraining; 1000 give exact retrieval at the trained context."""
    learning_rate: float = Field(default=4e-3, gt=0)
    """Peak learning rate of pretraining."""

    geometry = RopeGeometry(
        head_dim=32,
        rotary_dim=32,
        num_heads=3,
        num_kv_heads=3,
        theta=10000.0,
        trained_context=128,
    )
    shape = ModelShape(
        num_layers=2,
        hidden_size=96,
        intermediate_size=256,
        vocab_size=392,
        tied_embeddings=True,
    )
    initializer_range = 0.1
    """Large initial weights; with them, retrieval appears early in training."""
    licence = "trained here; no licence of others"
    bytes_per_token = 1.0
    bytes_per_tex_token = 1.0
    keys: ClassVar[KeyVocabulary] = KeyVocabulary(
        first_key=NUM_BYTES, first_query=NUM_BYTES + 8 * 16, families=8, members=16
    )

    def pretraining(self) -> Pretraining:
        """Return AdamW settings: `steps` batches of 16 x 128 tokens, cosine decay to 10 %."""
        from lce_core.recipe import Training

        tokens_per_step = ROWS_PER_STEP * ROW_TOKENS
        training = Training(
            learning_rate=self.learning_rate,
            tokens_per_step=tokens_per_step,
            warmup_steps=min(50, self.steps // 2),
            schedule="cosine",
            final_fraction=0.1,
            weight_decay=0.1,
            adam_beta1=0.9,
            adam_beta2=0.95,
            gradient_clip=1.0,
        )
        return Pretraining(training, ROW_TOKENS, self.steps * tokens_per_step)

    def tokenizer(self, folder: Path | None) -> PreTrainedTokenizerBase:
        return byte_tokenizer(self.keys) if folder is None else super().tokenizer(folder)

    def prepare_rows(
        self, rows: NDArray[np.uint32], rng: np.random.Generator
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
        return plant_keys(rows, self.keys, rng)


MODEL = ToyLlama


def plant_keys(
    rows: NDArray[np.uint32], keys: KeyVocabulary, rng: np.random.Generator
) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Hide keys, queries and answers in packed rows (rows, tokens); return loss weights too.

    A row gets keys of distinct families at random positions and, for each key, a later query token
    of the same family followed by the key again. The answer needs a single attention match instead
    of an induction circuit, so a two-layer model learns it in minutes. Inserted tokens push the
    last tokens out of the row. The distance from key to query is uniform up to the whole row.
    """
    num_rows, length = rows.shape
    planted = min(keys.families, length // TOKENS_PER_KEY)
    if not planted or not num_rows:
        return rows, np.ones(rows.shape, dtype=np.uint8)
    families = rng.permuted(np.tile(np.arange(keys.families), (num_rows, 1)), axis=1)[:, :planted]
    key_ids = keys.ids(families, rng.integers(keys.members, size=families.shape))
    query_ids = keys.first_query + families

    text_length = length - 3 * planted
    distance = rng.uniform(0, text_length, size=families.shape)
    key_at = rng.uniform(0, text_length - distance)
    query_at = key_at + distance
    # Give all tokens real-valued positions and sort the tokens by position, so that tokens never
    # collide. A query and its answer have the same position; the sort is stable and the query comes
    # first in the list.
    text_at = np.broadcast_to(np.arange(text_length) + 0.5, (num_rows, text_length))
    places = np.concatenate([text_at, key_at, query_at, query_at], axis=1)
    tokens = np.concatenate([rows[:, :text_length], key_ids, query_ids, key_ids], axis=1)
    order = np.argsort(places, axis=1, kind="stable")
    weights = np.ones(rows.shape, dtype=np.uint8)
    weights[order >= text_length + 2 * planted] = ANSWER_WEIGHT
    return np.take_along_axis(tokens, order, axis=1).astype(np.uint32), weights


def byte_tokenizer(keys: KeyVocabulary) -> PreTrainedTokenizerFast:
    """Build a tokenizer of bytes (ids 0..255), then `<key-3-07>` and `<query-3>` tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    vocabulary = {character: byte for byte, character in bytes_to_unicode().items()}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    # Without merges a word is just its bytes, so splitting into words has no effect.
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    names = [
        f"<key-{family}-{member:02d}>"
        for family in range(keys.families)
        for member in range(keys.members)
    ]
    names += [f"<query-{family}>" for family in range(keys.families)]
    backend.add_special_tokens([AddedToken(name, special=True) for name in names])
    return PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False)
