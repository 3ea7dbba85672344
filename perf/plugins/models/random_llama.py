"""Llama of any depth and width with random weights, made on the GPU where there is one.

Its cost is that of a trained model of the same shape. As it stands it has Llama-2-7B's; weights
are drawn where they will be used, because a CPU takes minutes to draw seven billion.

Source: own; the shape's numbers from arXiv:2307.09288, section 2.2 and table 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from lce_core.devices import resolve_device
from lce_core.evidence import calls
from lce_core.models import ModelShape
from lce_core.models._architectures import Llama
from lce_core.models._stock import StockModel
from lce_core.registry import Source
from lce_core.rope import RopeGeometry

if TYPE_CHECKING:
    from transformers import PreTrainedModel

VERSION = 1
SOURCE = Source(paper="own", place="docs/training.md", reference="own")
EVIDENCE = (
    calls(
        StockModel.num_parameters,
        6_738_415_616,
        "Llama-2-7B's, from the size of the hub's files",
        parameters={},
    ),
)


class RandomLlama(Llama):
    """A Llama with one key-value head a head and a vocabulary of 32,000.

    It has no end-of-text token, so that answers have one length.
    """

    layers: int = Field(default=32, gt=0)
    heads: int = Field(default=32, gt=0)
    head_dim: int = Field(default=128, gt=0)
    intermediate_size: int = Field(default=11008, gt=0)
    trained: int = Field(default=4096, gt=0)
    """Tokens of context it would have been trained with."""

    @property
    def geometry(self) -> RopeGeometry:  # type: ignore[override]
        """Return full rotary heads with base 10,000."""
        return RopeGeometry(
            self.head_dim, self.head_dim, self.heads, self.heads, 10000.0, self.trained
        )

    @property
    def shape(self) -> ModelShape:  # type: ignore[override]
        """Return Llama-2-7B's shape with the parameters' sizes."""
        return ModelShape(
            num_layers=self.layers,
            hidden_size=self.heads * self.head_dim,
            intermediate_size=self.intermediate_size,
            vocab_size=32000,
        )

    def initialise(self, seed: int, dtype: Any = None) -> PreTrainedModel:
        """Random weights, fp32 unless `dtype` says another, on the GPU if there is one."""
        import torch
        from transformers import AutoModelForCausalLM

        torch.manual_seed(seed)
        with torch.device(resolve_device("auto")):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(
                self.config(), dtype=dtype or torch.float32, attn_implementation="sdpa"
            )
        return model


MODEL = RandomLlama
