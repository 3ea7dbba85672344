"""Phi-2, the second base model of LCEG: 2048 tokens of context, 32 of 80 head elements rotated.

Source: Javaheripi et al. 2023, "Phi-2: the surprising power of small language models". Only its
predecessor, which has the same architecture, has a technical report (arXiv:2309.05463).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from lce_core.evidence import calls
from lce_core.models import HubAddress, ModelShape
from lce_core.models._stock import StockModel
from lce_core.registry import Source
from lce_core.rope import RopeGeometry

if TYPE_CHECKING:
    from transformers import PhiConfig

VERSION = 1
SOURCE = Source(
    paper="arXiv:2309.05463",
    place="section 2.1 (architecture of Phi-1.5)",
    reference="huggingface.co/microsoft/phi-2@ef382358ec9e382308935a992d908de099b64c23",
)
EVIDENCE = (
    calls(
        StockModel.num_parameters,
        2_779_683_840,
        "half of total_size, 5,559,367,680 bytes, in the hub's model.safetensors.index.json",
        parameters={},
    ),
)


class Phi2(StockModel):
    """The 2.7-billion-parameter Phi-2."""

    geometry: ClassVar[RopeGeometry] = RopeGeometry(
        head_dim=80,
        rotary_dim=32,
        num_heads=32,
        num_kv_heads=32,
        theta=10000.0,
        trained_context=2048,
    )
    shape: ClassVar[ModelShape] = ModelShape(
        num_layers=32,
        hidden_size=2560,
        intermediate_size=10240,
        vocab_size=51200,
        gated_mlp=False,
    )
    hub: ClassVar[HubAddress | None] = HubAddress(
        "microsoft/phi-2", "ef382358ec9e382308935a992d908de099b64c23"
    )
    licence: ClassVar[str] = "MIT"

    def config(self) -> PhiConfig:
        """Return a stock Phi configuration with partial rotary embedding and its dropout."""
        from transformers import PhiConfig

        geometry, shape = self.geometry, self.shape
        return PhiConfig(
            vocab_size=shape.vocab_size,
            hidden_size=shape.hidden_size,
            intermediate_size=shape.intermediate_size,
            num_hidden_layers=shape.num_layers,
            num_attention_heads=geometry.num_heads,
            num_key_value_heads=geometry.num_kv_heads,
            max_position_embeddings=geometry.trained_context,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": geometry.theta,
                "partial_rotary_factor": geometry.rotary_dim / geometry.head_dim,
            },
            resid_pdrop=0.1,
            tie_word_embeddings=shape.tied_embeddings,
            bos_token_id=50256,
            eos_token_id=50256,
        )


MODEL = Phi2
