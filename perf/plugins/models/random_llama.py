"""Llama-2-7B with random weights and any number of layers, or a tiny model of its kind.

It costs as much time and memory as a trained model of the same shape. Weights are drawn on the GPU
if there is one, because a CPU takes minutes to draw seven billion.

Source: own; sizes of `llama2_7b`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import Field

from lce_core.devices import resolve_device
from lce_core.models import ModelShape
from lce_core.models._checkpoints import Llama27B
from lce_core.models._stock import Llama
from lce_core.registry import Source
from lce_core.rope import RopeGeometry

if TYPE_CHECKING:
    from transformers import PreTrainedModel

VERSION = 1
SOURCE = Source(paper="own", place="docs/training.md", reference="own")
EVIDENCE = Llama27B.evidence


class RandomLlama(Llama):
    """A Llama without an end-of-text token, so that all answers have the same length."""

    layers: int = Field(default=32, gt=0)
    tiny: bool = False

    @property
    def geometry(self) -> RopeGeometry:  # type: ignore[override]
        return RopeGeometry(16, 16, 2, 2, 1e4, 128) if self.tiny else Llama27B.geometry

    @property
    def shape(self) -> ModelShape:  # type: ignore[override]
        widths = {"hidden_size": 32, "intermediate_size": 48} if self.tiny else {}
        return replace(Llama27B.shape, num_layers=self.layers, **widths)

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
