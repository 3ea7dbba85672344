"""LLaMA-7B (version 1), from YaRN's ablation: 2048 tokens of context, full rotary heads.

It has the sizes of Llama-2-7B with half its context and another epsilon in the norms. Its authors
sent the weights to researchers on request and have no hub repository. The pinned repository is a
conversion by others that most work with this model names. It holds safetensors and no code.

Source: Touvron et al. 2023, arXiv:2302.13971, sections 2.2 and 2.3, table 2.
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
    paper="arXiv:2302.13971",
    place="section 2.2 and table 2",
    reference="huggingface.co/huggyllama/llama-7b@8416d3fefb0cb3ff5775a7b13c1692d10ff1aa16",
)
EVIDENCE = (
    calls(
        StockModel.num_parameters,
        6_738_415_616,
        "2 x 32000 x 4096 + 32 x (4 x 4096^2 + 3 x 4096 x 11008 + 2 x 4096) + 4096, by hand",
        parameters={},
    ),
)


class Llama7B(StockModel):
    """The 7-billion-parameter LLaMA."""

    geometry: ClassVar[RopeGeometry] = RopeGeometry(
        head_dim=128,
        rotary_dim=128,
        num_heads=32,
        num_kv_heads=32,
        theta=10000.0,
        trained_context=2048,
    )
    shape: ClassVar[ModelShape] = ModelShape(
        num_layers=32,
        hidden_size=4096,
        intermediate_size=11008,
        vocab_size=32000,
    )
    hub: ClassVar[HubAddress | None] = HubAddress(
        "huggyllama/llama-7b", "8416d3fefb0cb3ff5775a7b13c1692d10ff1aa16"
    )
    licence: ClassVar[str] = "LLaMA licence, non-commercial research"

    def config(self) -> LlamaConfig:
        """Return a stock Llama configuration; token 1 begins a text, token 2 ends it."""
        return llama_config(self.geometry, self.shape, rms_norm_eps=1e-6, bos=1, eos=2)


MODEL = Llama7B
