"""Architecture of SmolLM2-135M, which its base and instruct weights share.

Source: Allal et al. 2025, "SmolLM2: When Smol Goes Big", arXiv:2502.02737, appendix on the smaller
models; its context was extended to 8,192 tokens with a RoPE base of 100,000.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from lce_core.models import ModelShape
from lce_core.models._llama import llama_config
from lce_core.models._stock import StockModel
from lce_core.rope import RopeGeometry

if TYPE_CHECKING:
    from transformers import LlamaConfig


class SmolLM2(StockModel):
    """A Llama with 30 narrow layers, 9 query heads and 3 key-value heads."""

    geometry: ClassVar[RopeGeometry] = RopeGeometry(
        head_dim=64,
        rotary_dim=64,
        num_heads=9,
        num_kv_heads=3,
        theta=100_000.0,
        trained_context=8192,
    )
    shape: ClassVar[ModelShape] = ModelShape(
        num_layers=30,
        hidden_size=576,
        intermediate_size=1536,
        vocab_size=49152,
        tied_embeddings=True,
    )
    licence: ClassVar[str] = "Apache-2.0"
    begin: ClassVar[int]
    """Id of the beginning-of-text token."""
    end: ClassVar[int]
    """Id of the end-of-text token."""

    def config(self) -> LlamaConfig:
        """Return a stock Llama configuration with tied embeddings."""
        return llama_config(self.geometry, self.shape, bos=self.begin, eos=self.end)
