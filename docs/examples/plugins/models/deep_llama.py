"""Four-layer byte-level Llama with 128 tokens of context and one key-value head.

A study trains this model as one of its steps, on bytes and retrieval keys as the toy Llama.

Source: own; grouped heads as in Llama-2-70B (arXiv:2307.09288, section 2.2).
"""

from __future__ import annotations

from lce_core.evidence import calls
from lce_core.models import ModelShape
from lce_core.models.toy_llama import ToyLlama
from lce_core.registry import Source
from lce_core.rope import RopeGeometry


class DeepLlama(ToyLlama):
    """The toy Llama with twice as many layers and a single key-value head."""

    geometry = RopeGeometry(
        head_dim=32,
        rotary_dim=32,
        num_heads=3,
        num_kv_heads=1,
        theta=10000.0,
        trained_context=128,
    )
    shape = ModelShape(
        num_layers=4,
        hidden_size=96,
        intermediate_size=256,
        vocab_size=392,
        tied_embeddings=True,
    )


MODEL = DeepLlama
SOURCE = Source(
    paper="own",
    place="a variation of toy_llama",
    reference="own",
)
EVIDENCE = (
    calls(
        ToyLlama.num_parameters,
        431_712,
        "392 x 96 + 4 x (2 x 96 x 96 + 2 x 96 x 32 + 3 x 96 x 256 + 2 x 96) + 96, by hand",
        parameters={},
    ),
)
VERSION = 1
