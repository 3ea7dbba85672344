"""A Llama of any depth and width with random weights; by default Llama-2-7B's.

It costs as much time and memory as a trained model of the same shape. Weights are drawn on the GPU
if there is one, because a CPU takes minutes to draw seven billion.

Source: own; the shape's numbers from arXiv:2307.09288, section 2.2 and table 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from lce_core.devices import resolve_device
from lce_core.evidence import calls
from lce_core.models import ModelShape
from lce_core.models._stock import Llama, StockModel
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
        "number of parameters of Llama-2-7B, from the size of the files on the hub",
        parameters={},
    ),
)


class RandomLlama(Llama):
    """A Llama without grouped heads, with a vocabulary of 32,000 and random weights.

    It has no end-of-text token, so that all answers have the same length.
    """

    layers: int = Field(default=32, gt=0)
    heads: int = Field(default=32, gt=0)
    head_dim: int = Field(default=128, gt=0)
    intermediate_size: int = Field(default=11008, gt=0)
    trained: int = Field(default=4096, gt=0)
    """Trained context in tokens."""

    @property
    def geometry(self) -> RopeGeometry:  # type: ignore[override]
        return RopeGeometry(
            self.head_dim, self.head_dim, self.heads, self.heads, 10000.0, self.trained
        )

    @property
    def shape(self) -> ModelShape:  # type: ignore[override]
        return ModelShape(
            num_layers=self.layers,
            hidden_size=self.heads * self.head_dim,
            intermediate_size=self.intermediate_size,
            vocab_size=32000,
        )

    def initialise(self, seed: int, dtype: Any = None) -> PreTrainedModel:
        """Return the model with random weights (fp32 by default), on the GPU if there is one."""
        import torch
        from transformers import AutoModelForCausalLM

        torch.manual_seed(seed)
        with torch.device(resolve_device("auto")):
            model: PreTrainedModel = AutoModelForCausalLM.from_config(
                self.config(), dtype=dtype or torch.float32, attn_implementation="sdpa"
            )
        return model


MODEL = RandomLlama
