"""Base models, one file each: geometry, where the weights come from, and how to load them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from lce_core.errors import UnavailableError
from lce_core.models._weights_digest import weights_digest
from lce_core.registry import Plugin, Registry
from lce_core.rope import RopeGeometry

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from lce_core.recipe import Training

__all__ = [
    "MODELS",
    "HubAddress",
    "KeyVocabulary",
    "LanguageModel",
    "ModelShape",
    "Pretraining",
    "weights_digest",
]


@dataclass(frozen=True)
class ModelShape:
    """Sizes the cost model needs (spec of FLOPs: `lce_core.study.cost`)."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    vocab_size: int
    gated_mlp: bool = True
    """Three MLP matrices (Llama) instead of two (Phi)."""
    tied_embeddings: bool = False


@dataclass(frozen=True)
class HubAddress:
    """A repository of the model hub at a commit."""

    repo: str
    revision: str
    """40-hex commit: a branch could change under a study."""


@dataclass(frozen=True)
class KeyVocabulary:
    """Single-token needles for models too small to copy a number.

    Key token of family f, member m: `first_key + f * members + m`; query token of family f:
    `first_query + f`. A query is answered by the key of its family that appeared before.
    """

    first_key: int
    first_query: int
    families: int
    members: int


@dataclass(frozen=True)
class Pretraining:
    """How a base model that ships no weights is trained from scratch as a step of the study."""

    training: Training
    sequence_length: int
    num_tokens: int


class LanguageModel(Plugin):
    """Base of all base models."""

    geometry: ClassVar[RopeGeometry]
    shape: ClassVar[ModelShape]
    hub: ClassVar[HubAddress | None] = None
    """Where the hub has it, or None."""
    licence: ClassVar[str]
    is_fetched: ClassVar[bool] = False
    """Whether `fetch` must have been called before the model can be loaded."""
    reads_config: ClassVar[bool] = False
    """Whether geometry and shape come from a config.json, and only `resolved` models have them."""
    keys: ClassVar[KeyVocabulary | None] = None
    bytes_per_token: ClassVar[float] = 3.5
    """Bytes of English prose in a token, roughly: for predicting cost before text is tokenised."""
    bytes_per_tex_token: ClassVar[float] = 2.5
    """The same for TeX; Llama's tokenizer makes 662 thousand tokens of 1.67 MB of it."""

    @property
    def known_as(self) -> str:
        """Its name in a study: in tables, in `--select` and before the = of `--model-folder`."""
        return self.plugin_name

    @property
    def is_known(self) -> bool:
        """Whether geometry and shape can be asked; `resolved` gives a model of which they can."""
        return True

    def resolved(self, folder: Path | None) -> Self:
        """The model with all that a plan needs to know of it, read from `folder` or the hub.

        Raises:
          UnavailableError: what it has to read is out of reach.
          SpecError: what it reads says that no method can be put on the model.
          DataError: what it reads is broken.
        """
        return self

    def tokenizer_parameters(self) -> dict[str, Any]:
        """Parameters that text under its tokenizer depends on, as in `identity`; most have none."""
        return {}

    def pretraining(self) -> Pretraining | None:
        """Recipe for a base trained from scratch; None where weights are downloaded."""
        return None

    @classmethod
    def origin(cls) -> str:
        """Where the weights come from, in a few words."""
        return "trained by the study"

    def fetch(self, models: Path) -> Path:
        """Brings weights and tokenizer to this machine and gives the folder they lie in.

        Args:
          models: where a model that no cache of its own keeps is written.

        Raises:
          UnavailableError: where it comes from cannot be reached; or the study trains it itself.
        """
        raise UnavailableError(
            self.plugin_name,
            "a model that the study trains itself",
            "a model with weights that are published",
            "run the study, which trains it",
        )

    def fetched(self, models: Path) -> Path | None:
        """The folder below `models` with what `fetch` wrote there, if it did."""
        return None

    def tokenizer(self, folder: Path | None) -> PreTrainedTokenizerBase:
        """The model's tokenizer, from `folder` or the hub at the pinned revision.

        Raises:
          UnavailableError: neither the folder nor the hub has it; says how to get it.
        """
        raise NotImplementedError

    def initialise(self, seed: int) -> PreTrainedModel:
        """A model of this architecture with random fp32 weights that follow from `seed`."""
        raise NotImplementedError

    def load(self, folder: Path | None, dtype: Any) -> PreTrainedModel:
        """The base model with stock attention, weights from `folder` or the hub.

        Raises:
          UnavailableError: neither the folder nor the hub has it; says how to get it.
        """
        raise NotImplementedError

    def load_published(self, folder: Path, dtype: Any) -> PreTrainedModel:
        """Weights that others trained from this model, as a model with its rotary embedding.

        What their config.json says of scaled frequencies is left out: a method puts its own there.

        Raises:
          SpecError: config.json says another architecture; names the key.
          DataError: weights are missing or unreadable.
        """
        raise NotImplementedError

    def prepare_rows(
        self, rows: NDArray[np.uint32], rng: np.random.Generator
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
        """Last touch on packed rows (rows, tokens): the rows and a loss weight per token."""
        return rows, np.ones(rows.shape, dtype=np.uint8)


MODELS: Registry[LanguageModel] = Registry("lce_core.models", "MODEL", LanguageModel)
