"""Base classes of Llama, Qwen2, Phi and Gemma 3 models, which derive a configuration from sizes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lce_core.models import LocalLayers
from lce_core.models._stock import StockModel, read_config
from lce_core.rope.architectures import ARCHITECTURES

if TYPE_CHECKING:
    from transformers import Gemma3TextConfig, LlamaConfig, PhiConfig, Qwen2Config


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


class Qwen2(StockModel):
    """A stock `Qwen2ForCausalLM`: queries, keys and values have biases."""

    end: ClassVar[int]
    """Id of the end-of-text token. Qwen2 has no beginning-of-text token."""

    def config(self) -> Qwen2Config:
        from transformers import Qwen2Config

        return Qwen2Config(
            **_shared_keys(self),
            rope_parameters={"rope_type": "default", "rope_theta": self.geometry.theta},
            rms_norm_eps=1e-6,
            bos_token_id=None,
            eos_token_id=self.end,
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


class Gemma3(StockModel):
    """A stock `Gemma3ForCausalLM`: `shape.local` says which layers have a sliding window."""

    architecture = ARCHITECTURES["gemma3_text"]

    @property
    def local(self) -> LocalLayers | None:
        return self.shape.local

    def config(self) -> Gemma3TextConfig:
        from transformers import Gemma3TextConfig

        geometry, local = self.geometry, self.shape.local
        assert local is not None, "every Gemma 3 has layers with a sliding window"
        return Gemma3TextConfig(
            **_shared_keys(self),
            head_dim=geometry.head_dim,
            query_pre_attn_scalar=geometry.head_dim,
            sliding_window=local.window,
            layer_types=[
                "sliding_attention" if layer in local.layers else "full_attention"
                for layer in range(self.shape.num_layers)
            ],
            rope_parameters={
                "full_attention": {"rope_type": "default", "rope_theta": geometry.theta},
                "sliding_attention": {"rope_type": "default", "rope_theta": local.theta},
            },
            rms_norm_eps=1e-6,
            bos_token_id=2,
            eos_token_id=1,
            pad_token_id=0,
        )

    def check_folder(self, folder: Path) -> None:
        super().check_folder(folder)
        found, own = read_config(folder), self.config()
        for key in ("sliding_window", "layer_types", "query_pre_attn_scalar"):
            self._compare(folder, key, getattr(found, key), getattr(own, key))
        key = "sliding_attention"
        theirs, ours = found.rope_parameters or {}, own.rope_parameters or {}
        self._compare(folder, key, theirs.get(key), ours.get(key))


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
