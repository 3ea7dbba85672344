"""Base classes of base models that unmodified transformers classes run: initialise, load, check.

Before weights are read, config.json is compared with the plug-in's sizes: if theta or the number of
heads differed, the study would run and its results would be wrong. Only safetensors are loaded, and
code shipped with weights is never run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from lce_core.errors import DataError, SpecError, UnavailableError, first_line
from lce_core.hub import cached, fetch
from lce_core.models import LanguageModel, LocalLayers, require_files
from lce_core.models._weights import damaged
from lce_core.rope.architectures import ARCHITECTURES, Architecture
from lce_core.rope.stated import FULL, SLIDING

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

Files = Literal["weights", "tokenizer", "config"]
_TOKENIZER = ("*.json", "*.jinja", "tokenizer.model", "merges.txt")
_WEIGHTS = ("*.safetensors",)
_FILES: Mapping[Files, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "weights": ((*_TOKENIZER, *_WEIGHTS), _WEIGHTS),
    "tokenizer": (_TOKENIZER, ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")),
    "config": (("config.json",), ("config.json",)),
}
"""Globs, for each purpose, of the files to download and of those of which one must be cached."""
_CONTEXT = "max_position_embeddings"
_CHECKED = (
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    _CONTEXT,
)
"""Keys of config.json whose values must be the plug-in's; weights may have more tokens."""
_ROPE = ("rope_type", "rope_theta", "partial_rotary_factor")
"""Keys of `rope_parameters` that are checked, too."""
_WINDOWED = ("sliding_window", "layer_types", "query_pre_attn_scalar", SLIDING)
"""Keys of models with windows; SLIDING is the rotary table of layers with a window, as a whole."""


class LoadedModel(LanguageModel):
    """A base model that unmodified transformers classes load from a folder or the hub."""

    @property
    def local(self) -> LocalLayers | None:
        return self.shape.local

    def check_folder(self, folder: Path) -> None:
        """Raise SpecError if the folder's config.json describes another model."""
        raise NotImplementedError

    def tokenizer(self, folder: Path | None) -> PreTrainedTokenizerBase:
        from transformers import AutoTokenizer

        place = self._place(folder, "tokenizer")
        try:
            loaded: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
                place, trust_remote_code=False, local_files_only=True
            )
        except Exception as error:  # tokenizers raises Exception itself
            raise DataError(
                place,
                f"no readable tokenizer ({first_line(error)})",
                "the model's tokenizer files",
                "copy the tokenizer files there",
            ) from error
        return loaded

    def fetch(self, models: Path) -> Path:
        if self.hub is None:
            return super().fetch(models)
        return self._place(None, "weights")

    def needs_download(self, models: Path) -> bool:
        if self.hub is None:
            return super().needs_download(models)
        return cached(self.hub.repo, self.hub.revision, *_FILES["weights"], "model") is None

    def load(self, folder: Path | None, dtype: Any) -> PreTrainedModel:
        place = self._place(folder, "weights")
        self.check_folder(place)
        return load_weights(place, dtype)

    def _place(self, folder: Path | None, files: Files) -> Path:
        where = f"base model {self.known_as}"
        named = f"name its folder with `--model-folder {self.known_as}=FOLDER`"
        if folder is not None:
            require_files(folder)
            if files != "tokenizer" and not (folder / "config.json").is_file():
                raise UnavailableError(
                    f"{where}: {folder}", "a folder without config.json", "the model's files", named
                )
            return folder
        if self.hub is None:
            raise UnavailableError(
                where,
                "neither a folder nor a repository",
                "the folder with the model's files",
                named if self.pretraining() is None else f"run the study, or {named}",
            )
        patterns, required = _FILES[files]
        try:
            return fetch(self.hub.repo, self.hub.revision, patterns, required, "model")
        except UnavailableError as error:
            raise UnavailableError(
                f"{where}: {error.where}",
                error.got,
                "the model in the hub cache, on the hub or in a local folder",
                f"{named}; or connect to the hub and, for a gated repository, accept the licence"
                " there and set HF_TOKEN",
            ) from error


class StockModel(LoadedModel):
    """A base model whose plug-in states geometry and shape and derives its configuration."""

    model_type: ClassVar[str]
    _checked: ClassVar[tuple[str, ...]] = (*_CHECKED, *_ROPE)

    @classmethod
    def origin(cls) -> str:
        return super().origin() if cls.hub is None else f"{cls.hub.repo}@{cls.hub.revision[:7]}"

    def config(self) -> PretrainedConfig:
        from transformers import AutoConfig

        geometry, shape = self.geometry, self.shape
        keys = {
            "vocab_size": shape.vocab_size,
            "hidden_size": shape.hidden_size,
            "intermediate_size": shape.intermediate_size,
            "num_hidden_layers": shape.num_layers,
            "num_attention_heads": geometry.num_heads,
            "num_key_value_heads": geometry.num_kv_heads,
            "max_position_embeddings": geometry.trained_context,
            "tie_word_embeddings": shape.tied_embeddings,
            "rope_parameters": {"rope_type": "default", "rope_theta": geometry.theta},
        }
        config: PretrainedConfig = AutoConfig.for_model(self.model_type, **keys | self.own_keys())
        return config

    def own_keys(self) -> dict[str, Any]:
        """Return the keys of the configuration that only this model type has, or has otherwise."""
        raise NotImplementedError

    def num_parameters(self) -> int:
        """Count the weights of the architecture without allocating memory for them."""
        import torch
        from transformers import AutoModelForCausalLM

        with torch.device("meta"):
            built: PreTrainedModel = AutoModelForCausalLM.from_config(self.config())
        return int(built.num_parameters())

    def initialise(self, seed: int) -> PreTrainedModel:
        import torch
        from transformers import AutoModelForCausalLM

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model: PreTrainedModel = AutoModelForCausalLM.from_config(
                self.config(),
                dtype=torch.float32,
                attn_implementation=self.architecture.stock_attention,
            )
        return model

    def check_folder(self, folder: Path) -> None:
        self._compare(folder, read_config(folder), self._checked)

    def load_published(self, folder: Path, dtype: Any) -> PreTrainedModel:
        place = self._place(folder, "weights")
        found, own = read_config(place), self.config()
        self._compare(place, found, [key for key in _CHECKED if key != _CONTEXT])
        found.rope_parameters = dict(own.rope_parameters or {})
        setattr(found, _CONTEXT, getattr(own, _CONTEXT))
        return load_weights(place, dtype, found)

    def _compare(self, folder: Path, config: PretrainedConfig, keys: Sequence[str]) -> None:
        own = self.config()
        for key in keys:
            if (given := _stated(config, key)) != (expected := _stated(own, key)):
                raise SpecError(
                    f"{folder / 'config.json'}: {key}",
                    repr(given),
                    f"{expected!r}, the value of base model {self.plugin_name!r}",
                    "name another folder, or choose the base model of these files, such as"
                    " hub_model",
                )


def load_weights(
    place: Path, dtype: Any, config: PretrainedConfig | None = None
) -> PreTrainedModel:
    """Load a model with transformers' own attention; `config` replaces config.json."""
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    config = config or read_config(place)
    architecture = ARCHITECTURES.get(config.model_type, Architecture())
    gemma3 = config.model_type == "gemma3_text"
    # Gemma 3 with vision has these prefixes; transformers must rename them.
    prefixes = {r"^(model\.)?language_model(\.model)?\.": "model."}
    try:
        found: Any = AutoModelForCausalLM.from_pretrained(
            place,
            config=config,
            key_mapping=prefixes if gemma3 else None,
            dtype=dtype,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            attn_implementation=architecture.stock_attention,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        got = f"no readable safetensors weights ({first_line(error)})"
        raise damaged(place, got, "the model's weights as safetensors") from error
    model: PreTrainedModel
    model, info = found
    if gemma3:
        # Otherwise checkpoints would be saved with the prefixes.
        found[0]._weight_conversions = None
    if missing := sorted(info["missing_keys"]):
        got = f"a checkpoint without {len(missing)} of the model's tensors (first {missing[0]!r})"
        raise damaged(place, got, "every tensor of the model")
    return model


def read_config(folder: Path) -> PretrainedConfig:
    """Return the configuration of the language model, also of one with vision."""
    from transformers import AutoConfig

    try:
        found: PretrainedConfig = AutoConfig.from_pretrained(
            folder, trust_remote_code=False, local_files_only=True
        )
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        got = f"no readable model configuration ({first_line(error)})"
        expected = "the configuration of a transformers model"
        raise damaged(folder / "config.json", got, expected) from error
    text: PretrainedConfig = found.get_text_config()
    return text


def _stated(config: PretrainedConfig, key: str) -> object:
    if key not in (*_ROPE, SLIDING):
        return getattr(config, key, None)
    # transformers fills rope_parameters from the older keys rope_theta, rope_scaling and
    # partial_rotary_factor.
    stated = config.rope_parameters or {}
    # Gemma 3 states one table for each kind of layers. Other keys than SLIDING are those of layers
    # with full attention, which methods extend.
    value = stated.get(key) if key == SLIDING else stated.get(FULL, stated).get(key)
    return 1.0 if value is None and key == "partial_rotary_factor" else value


class Llama(StockModel):
    """A stock `LlamaForCausalLM` with unscaled rotary embedding."""

    model_type = "llama"
    begin: ClassVar[int | None] = None
    """Id of the beginning-of-text token; None if the tokenizer has none."""
    end: ClassVar[int | None] = None
    """Id of the end-of-text token; None if the tokenizer has none."""
    rms_norm_eps: ClassVar[float] = 1e-5
    initializer_range: ClassVar[float] = 0.02

    def own_keys(self) -> dict[str, Any]:
        return {
            "head_dim": self.geometry.head_dim,
            "initializer_range": self.initializer_range,
            "rms_norm_eps": self.rms_norm_eps,
            "bos_token_id": self.begin,
            "eos_token_id": self.end,
            "pad_token_id": None,
        }


class Qwen2(StockModel):
    """A stock `Qwen2ForCausalLM`: queries, keys and values have biases."""

    model_type = "qwen2"
    end: ClassVar[int]
    """Id of the end-of-text token. Qwen2 has no beginning-of-text token."""

    def own_keys(self) -> dict[str, Any]:
        return {"rms_norm_eps": 1e-6, "bos_token_id": None, "eos_token_id": self.end}


class Phi(StockModel):
    """A stock `PhiForCausalLM`, which rotates part of each head."""

    model_type = "phi"

    def own_keys(self) -> dict[str, Any]:
        return {
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": self.geometry.theta,
                "partial_rotary_factor": self.geometry.rotary_dim / self.geometry.head_dim,
            },
            "resid_pdrop": 0.1,
            "bos_token_id": 50256,
            "eos_token_id": 50256,
        }


class Gemma3(StockModel):
    """A stock `Gemma3ForCausalLM`: `shape.local` says which layers have a sliding window."""

    model_type = "gemma3_text"
    architecture = ARCHITECTURES[model_type]
    _checked: ClassVar = (*StockModel._checked, *_WINDOWED)

    def own_keys(self) -> dict[str, Any]:
        geometry, local = self.geometry, self.shape.local
        assert local is not None, "every Gemma 3 has layers with a sliding window"
        return {
            "head_dim": geometry.head_dim,
            "query_pre_attn_scalar": geometry.head_dim,
            "sliding_window": local.window,
            "layer_types": [
                SLIDING if layer in local.layers else FULL for layer in range(self.shape.num_layers)
            ],
            "rope_parameters": {
                FULL: {"rope_type": "default", "rope_theta": geometry.theta},
                SLIDING: {"rope_type": "default", "rope_theta": local.theta},
            },
            "rms_norm_eps": 1e-6,
            "bos_token_id": 2,
            "eos_token_id": 1,
            "pad_token_id": 0,
        }
