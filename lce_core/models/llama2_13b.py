"""Llama-2-13B, the larger base model of YaRN's tables: 4096 tokens of context, full rotary heads.

The weights are gated: accept the licence on the hub and set HF_TOKEN, or name a folder. The pinned
revision holds safetensors and no code.

Source: Touvron et al. 2023, arXiv:2307.09288, section 2.2 and table 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from lce_core.evidence import calls
from lce_core.models import HubAddress, ModelShape
from lce_core.models._llama import llama_config
from lce_core.models._stock import StockModel
from lce_core.registry import Source
from lce_core.rope import RopeGeometry

if TYPE_CHECKING:
    from transformers import LlamaConfig

VERSION = 1
SOURCE = Source(
    paper="arXiv:2307.09288",
    place="section 2.2",
    reference="huggingface.co/meta-llama/Llama-2-13b-hf@5c31dfb671ce7cfe2d7bb7c04375e44c55e815b1",
)
EVIDENCE = (
    calls(
        StockModel.num_parameters,
        13_015_864_320,
        "2 x 32000 x 5120 + 40 x (4 x 5120^2 + 3 x 5120 x 13824 + 2 x 5120) + 5120, by hand",
        parameters={},
    ),
)


class Llama213B(StockModel):
    """The 13-billion-parameter Llama 2."""

    geometry: ClassVar[RopeGeometry] = RopeGeometry(
        head_dim=128,
        rotary_dim=128,
        num_heads=40,
        num_kv_heads=40,
        theta=10000.0,
        trained_context=4096,
    )
    shape: ClassVar[ModelShape] = ModelShape(
        num_layers=40,
        hidden_size=5120,
        intermediate_size=13824,
        vocab_size=32000,
    )
    hub: ClassVar[HubAddress | None] = HubAddress(
        "meta-llama/Llama-2-13b-hf", "5c31dfb671ce7cfe2d7bb7c04375e44c55e815b1"
    )
    licence: ClassVar[str] = "Llama 2 Community License"

    def config(self) -> LlamaConfig:
        """Return a stock Llama configuration; token 1 begins a text, token 2 ends it."""
        return llama_config(self.geometry, self.shape, bos=1, eos=2)


MODEL = Llama213B
