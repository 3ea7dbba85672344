"""Hide one-token keys in training rows, to teach retrieval to models too small to copy a number.

A row gets n keys of distinct families at random positions and, for each key, a later query token of
the same family followed by the key again. The answer needs a single attention match instead of an
induction circuit, so a two-layer model learns it in minutes. Tokens are inserted, not overwritten:
the text stays intact, and the last tokens of the row are dropped.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lce_core.models import KeyVocabulary

TOKENS_PER_KEY = 24
"""A training row gets one key per this many tokens, but at most one key per family."""
ANSWER_WEIGHT = 3
"""Loss weight of the key token that answers a query; all other tokens have weight 1."""


def plant_keys(
    rows: NDArray[np.uint32], keys: KeyVocabulary, rng: np.random.Generator
) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Hide keys, queries and answers in packed rows.

    The distance from key to query is uniform up to the whole row, so a model trained on rows of its
    context length sees every needle depth.

    Args:
      rows: token ids (rows, tokens).
      keys: the ids of keys and queries.
      rng: draws families, members and positions.

    Returns:
      The rows in the same shape, each with three text tokens fewer per key, and the loss weights
        (rows, tokens).
    """
    num_rows, length = rows.shape
    planted = min(keys.families, length // TOKENS_PER_KEY)
    if not planted or not num_rows:
        return rows, np.ones(rows.shape, dtype=np.uint8)
    families = rng.permuted(np.tile(np.arange(keys.families), (num_rows, 1)), axis=1)[:, :planted]
    members = rng.integers(keys.members, size=families.shape)
    key_ids = keys.first_key + families * keys.members + members
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
