"""Base classes of Llama and Phi models, which derive a transformers configuration from sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from lce_core.models._stock import StockModel

if TYPE_CHECKING:
    from transformers import LlamaConfig, PhiConfig


class Llama(StockModel):
    """A stock `LlamaForCausalLM` with unscaled rotary embedding."""

    begin: ClassVar[int | None] = None
    """Id of the beginning-of-text token; None if the tokenizer has none."""
    end: ClassVar[int | None] = None
    """Id of the end-of-text token; None if the tokenizer has none."""
    rms_norm_eps: ClassVar[float] = 1e-5
    initializer_range: ClassVar[float] = 0.02

    def config(self) -> LlamaConfig:
        from transformers import LlamaConfig

        return LlamaConfig(
            **_shared_keys(self),
            head_dim=self.geometry.head_dim,
            rope_parameters={"rope_type": "default", "rope_theta": self.geometry.theta},
            initializer_range=self.initializer_range,
            rms_norm_eps=self.rms_norm_eps,
            bos_token_id=self.begin,
            eos_token_id=self.end,
            pad_token_id=None,
        )


class Phi(StockModel):
    """A stock `PhiForCausalLM`, which rotates part of each head."""

    def config(self) -> PhiConfig:
        from transformers import PhiConfig

        rotated = self.geometry.rotary_dim / self.geometry.head_dim
        return PhiConfig(
            **_shared_keys(self),
            rope_parameters={
                "rope_type": "default",
                "rope_theta": self.geometry.theta,
                "partial_rotary_factor": rotated,
            },
            resid_pdrop=0.1,
            bos_token_id=50256,
            eos_token_id=50256,
        )


def _shared_keys(model: StockModel) -> dict[str, Any]:
    geometry, shape = model.geometry, model.shape
    return {
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": geometry.num_heads,
        "num_key_value_heads": geometry.num_kv_heads,
        "max_position_embeddings": geometry.trained_context,
        "tie_word_embeddings": shape.tied_embeddings,
    }
