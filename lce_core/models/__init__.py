"""Base models: sizes, rotary embedding, source of the weights, and how to load them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lce_core.errors import UnavailableError
from lce_core.models._weights import read_config_json as read_config_json
from lce_core.models._weights import require_files as require_files
from lce_core.models._weights import require_model as require_model
from lce_core.models._weights import require_whole as require_whole
from lce_core.models._weights import weights_digest as weights_digest
from lce_core.registry import Plugin, Registry
from lce_core.rope import RopeGeometry
from lce_core.rope.architectures import Architecture

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from lce_core.recipe import Training

ADDED_TOKENS = 64
"""Tokens by which published weights may exceed a plug-in's vocabulary (padding, added ones)."""


@dataclass(frozen=True)
class Experts:
    """Sizes of a mixture of experts, which replaces the MLP of some or all layers."""

    total: int
    active: int
    width: int
    """Width of an expert's MLP (`intermediate_size` of a plain MLP)."""
    num_layers: int
    """Number of layers with experts; the other layers have a plain MLP."""


@dataclass(frozen=True)
class LocalLayers:
    """Layers of a base model with a sliding window."""

    layers: tuple[int, ...]
    window: int
    """Number of recent tokens that a token sees, its own included."""
    theta: float | None
    """RoPE base of these layers, unscaled; None if they have the base model's own frequencies."""


@dataclass(frozen=True)
class ModelShape:
    """Sizes from which `lce_core.study.cost` computes a model's FLOPs and memory."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    gated_mlp: bool = True
    """True for three MLP matrices (Llama), False for two (Phi)."""
    tied_embeddings: bool = False
    experts: Experts | None = None
    local: LocalLayers | None = None


@dataclass(frozen=True)
class HubAddress:
    """A repository of the model hub at a commit."""

    repo: str
    revision: str
    """Commit of 40 hexadecimal digits; a branch could change during a study."""

    @property
    def reference(self) -> str:
        """Address at the commit, in the format of `Source.reference`."""
        return f"huggingface.co/{self.repo}@{self.revision}"


@dataclass(frozen=True)
class KeyVocabulary:
    """Token ids of a retrieval task for models that are too small to repeat a multi-digit number.

    Each needle ("key") is a single token, `first_key + f * members + m` for member m of family f.
    The right answer to the query `first_query + f` is the earlier key of that family.
    """

    first_key: int
    first_query: int
    families: int
    members: int


@dataclass(frozen=True)
class Pretraining:
    """Settings for training a base model without published weights from scratch."""

    training: Training
    sequence_length: int
    num_tokens: int


class LanguageModel(Plugin):
    """Base class of base-model plug-ins: sizes for planning, and how to fetch and load weights."""

    geometry: ClassVar[RopeGeometry]
    shape: ClassVar[ModelShape]
    hub: ClassVar[HubAddress | None] = None
    """Hub repository of the weights; None if the weights come from elsewhere."""
    licence: ClassVar[str] = "not stated"
    is_fetched: ClassVar[bool] = False
    """True if `lce fetch` must download the model before it can be loaded."""
    download_bytes: ClassVar[int | None] = None
    """Size of the files that `fetch` downloads; None for weights of two bytes each."""
    reads_config: ClassVar[bool] = False
    """True if geometry and shape are missing until `resolved` reads a config.json."""
    architecture: ClassVar[Architecture] = Architecture()
    """Properties of the model type that planning reads: sinks, needs_begin, only_longrope."""
    keys: ClassVar[KeyVocabulary | None] = None
    """Token ids of the one-token retrieval task; None if the model was not trained on it."""
    bytes_per_token: ClassVar[float] = 3.5
    """Approximate bytes of English prose per token, for cost estimates before text is tokenised."""
    bytes_per_tex_token: ClassVar[float] = 2.5
    """The same for TeX: 1.67 MB of TeX became 662,000 tokens of Llama's tokenizer."""

    @property
    def known_as(self) -> str:
        """Name of the model in tables, in `--select`, and in `--model-folder NAME=FOLDER`."""
        return self.plugin_name

    @property
    def is_known(self) -> bool:
        """True if geometry and shape are available; `resolved` returns a model that has them."""
        return True

    @property
    def max_ids(self) -> int:
        """Return the maximum number of token ids for which the weights can have embeddings."""
        return self.shape.vocab_size + (0 if self.reads_config else ADDED_TOKENS)

    @property
    def local(self) -> LocalLayers | None:
        """Layers with a sliding window, which methods leave unchanged; None for most models."""
        return None

    @property
    def note(self) -> str | None:
        """Note that tables show beside the model's name and context; None for most models."""
        if not self.is_known:
            return None
        parts, kept = [], {}
        if (scaling := self.geometry.scaling) is not None:
            parts.append(f"RoPE already scaled ({scaling.rope_type})")
        if self.geometry.unrotated:
            kept["no RoPE"] = len(self.geometry.unrotated)
        if (local := self.local) is not None:
            kept[f"a {local.window:,}-token window"] = len(local.layers)
        layers = self.shape.num_layers
        parts += [
            f"methods extend {layers - number} of {layers} layers; the others have {what}"
            for what, number in kept.items()
        ]
        return "; ".join(parts) or None

    def resolved(self, folder: Path | None) -> Self:
        """Return the model with known geometry and shape; read config.json if `reads_config`."""
        return self

    def tokenizer_parameters(self) -> dict[str, Any]:
        """Return the entries of `identity` on which tokenised text depends; {} for most models."""
        return {}

    def pretraining(self) -> Pretraining | None:
        """Return how a study trains this model from scratch; None if weights are downloaded."""
        return None

    @classmethod
    def origin(cls) -> str:
        """Return a phrase that names the source of the weights, for users and model cards."""
        return "trained by the study"

    def fetch(self, models: Path) -> Path:
        """Download weights and tokenizer to the hub's cache or below `models`; return their folder.

        Raises UnavailableError if the source cannot be reached, or the study trains the model.
        """
        raise UnavailableError(
            self.plugin_name,
            "a model that the study trains itself",
            "a model with published weights",
            "run the study, which trains the model",
        )

    def fetched(self, models: Path) -> Path | None:
        """Return the folder below `models` that `fetch` wrote; None before `fetch`."""
        return None

    def needs_download(self, models: Path) -> bool:
        """Return True if the weights are on no disk of this machine."""
        return self.is_fetched and self.fetched(models) is None

    def tokenizer(self, folder: Path | None) -> PreTrainedTokenizerBase:
        """Load the tokenizer; raises UnavailableError and DataError, as `load` does."""
        raise NotImplementedError

    def initialise(self, seed: int) -> PreTrainedModel:
        """Create a model with random fp32 weights; the caller's random state stays unchanged."""
        raise NotImplementedError

    def load(self, folder: Path | None, dtype: Any) -> PreTrainedModel:
        """Load the base model in evaluation mode, from `folder` or the hub's pinned revision.

        Raises:
          UnavailableError: if neither has the model; the message says how to get it.
          SpecError: if config.json contradicts this plug-in; the message names the key.
          DataError: if weights are missing or unreadable.
        """
        raise NotImplementedError

    def load_published(self, folder: Path, dtype: Any) -> PreTrainedModel:
        """Load published weights that others fine-tuned from this base model, such as YaRN's.

        Scaled frequencies in the config.json are ignored, because the study's method sets them.
        """
        raise NotImplementedError

    def prepare_rows(
        self, rows: NDArray[np.uint32], rng: np.random.Generator
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
        """Return training rows (rows, tokens), with synthetic tokens if any, and loss weights."""
        return rows, np.ones(rows.shape, dtype=np.uint8)


MODELS: Registry[LanguageModel] = Registry(
    "lce_core.models", "MODEL", LanguageModel, table="lce_core.models._checkpoints"
)
