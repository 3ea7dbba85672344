"""Any base model of a supported architecture: a hub repository at a commit, or a folder.

Sizes and rotary embedding are read from config.json when a study is planned and become part of the
model's identity, as do name and commit of a repository. For a folder, the ids of steps contain the
digest of its files instead. The label is part of neither, so a model may be renamed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, model_validator

from lce_core.errors import DataError, SpecError
from lce_core.evidence import calls
from lce_core.models import HubAddress, ModelShape
from lce_core.models._stock import LoadedModel, load_weights, read_config
from lce_core.models.hub_model.facts import Facts, facts_of, read_facts
from lce_core.registry import Examples, Source
from lce_core.rope import RopeGeometry
from lce_core.rope.architectures import ARCHITECTURES, Architecture

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

VERSION = 1
SOURCE = Source(
    paper="own",
    place="config.json of a transformers model",
    reference="https://huggingface.co/docs/transformers/main_classes/configuration",
)
EVIDENCE = (
    calls(
        facts_of,
        {
            "model_type": "mistral",
            "num_layers": 32,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "vocab_size": 32000,
            "tied_embeddings": False,
            "head_dim": 128,
            "rotary_dim": 128,
            "num_heads": 32,
            "num_kv_heads": 8,
            "theta": 10000.0,
            "trained_context": 8192,
        },
        "arXiv:2310.06825, table 1, with context_len for the trained context",
        config={
            "model_type": "mistral",
            "num_hidden_layers": 32,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "vocab_size": 32000,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 8192,
            "sliding_window": None,
        },
        where="config.json",
    ),
)
EXAMPLES: Examples = (
    {"repo": "meta-llama/Llama-2-7b-hf", "revision": "01c7f73d771dfac7d292323805ebc428287df4f9"},
)

_MAY_DIFFER = {"vocab_size"}
"""Fields of `Facts` in which a folder of weights may differ from the plan: padding tokens, and
tokens that a method inserts, enlarge the vocabulary."""


class HubModel(LoadedModel):
    """A model that the study names by its hub repository or by a local folder."""

    label: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9_]*$", max_length=64)
    """Name of the model in tables, in `--select` and in `--model-folder LABEL=FOLDER`. The default
    is the repository's name in lower case, with _ for other characters."""
    repo: str | None = Field(default=None, pattern=r"^[\w.-]+/[\w.-]+$")
    """Hub repository, OWNER/NAME; None for a model located by `--model-folder`."""
    revision: str | None = None
    """Commit of the repository, 40 hexadecimal digits."""
    trained_context: int | None = Field(default=None, gt=0)
    """Context that the model was trained with, in tokens. None reads it from config.json; state it
    if that file is ambiguous or wrong."""
    facts: Facts | None = None
    """Sizes and rotary embedding from config.json. lce sets this key during planning; a study must
    not contain it."""

    licence = "the publisher's"
    reads_config = True

    @model_validator(mode="after")
    def _placed(self) -> Self:
        if self.revision is not None and not re.fullmatch("[0-9a-f]{40}", self.revision):
            raise SpecError(
                "revision",
                repr(self.revision),
                "the 40 hex digits of a commit, because a branch or tag may change during a study",
                "take the commit from the repository's page",
            )
        if (self.repo is None) != (self.revision is None):
            missing, given = ("repo", "revision") if self.repo is None else ("revision", "repo")
            raise SpecError(
                missing,
                f"nothing beside the {given}",
                "a repository and its commit together",
                f"add `{missing}`",
            )
        if self.repo is None and self.label is None and self.facts is None:
            raise SpecError(
                "label",
                "neither a label nor a repository",
                "`repo` and `revision`, or a `label` whose folder is named on the command line",
                "write {name: hub_model, repo: OWNER/NAME, revision: COMMIT}, or"
                " {name: hub_model, label: LABEL} with --model-folder LABEL=FOLDER",
            )
        return self

    @classmethod
    def origin(cls) -> str:
        return "a repository at a commit, or a folder"

    @property
    def known_as(self) -> str:
        if self.label is None and self.repo is not None:
            name = self.repo.partition("/")[2].lower()
            return re.sub(r"[^a-z0-9]+", "_", name).strip("_") or self.plugin_name
        return self.label or self.plugin_name

    @property
    def is_known(self) -> bool:
        return self.facts is not None

    @property
    def geometry(self) -> RopeGeometry:  # type: ignore[override]
        return self._facts().geometry

    @property
    def shape(self) -> ModelShape:  # type: ignore[override]
        return self._facts().shape

    @property
    def architecture(self) -> Architecture:  # type: ignore[override]
        return ARCHITECTURES[self._facts().model_type]

    @property
    def hub(self) -> HubAddress | None:  # type: ignore[override]
        if self.repo is None or self.revision is None:
            return None
        return HubAddress(self.repo, self.revision)

    def identity(self) -> dict[str, Any]:
        # A model may be renamed.
        return {key: value for key, value in super().identity().items() if key != "label"}

    def tokenizer_parameters(self) -> dict[str, Any]:
        return {k: v for k, v in self.identity().items() if k not in ("name", "version")}

    def resolved(self, folder: Path | None) -> Self:
        if self.facts is not None:
            raise SpecError(
                f"base model {self.known_as}: facts",
                "the key `facts` in a study",
                "no such key, because lce reads these values from config.json",
                "remove the key",
            )
        facts = read_facts(self._place(folder, "config"), self.trained_context)
        return self.model_copy(update={"facts": facts})

    def tokenizer(self, folder: Path | None) -> PreTrainedTokenizerBase:
        loaded = super().tokenizer(folder)
        for token in (loaded.bos_token_id, loaded.eos_token_id):
            if token is not None and token >= self.shape.vocab_size:
                raise DataError(
                    f"base model {self.known_as}: tokenizer",
                    f"{loaded.convert_ids_to_tokens(token)!r} with id {token}",
                    f"ids below the model's vocabulary of {self.shape.vocab_size}",
                    "copy the tokenizer that belongs to the model",
                )
        return loaded

    def fetch(self, models: Path) -> Path:
        self.resolved(None)
        return super().fetch(models)

    def check_folder(self, folder: Path) -> None:
        expected = self._facts().model_dump(exclude=_MAY_DIFFER)
        found = read_facts(folder, self.trained_context).model_dump()
        for key, value in expected.items():
            if found[key] != value:
                raise SpecError(
                    f"{folder / 'config.json'}: {key}",
                    repr(found[key]),
                    f"{value!r}, the value when the study was planned",
                    "name the folder with which the study was planned, or plan the study again",
                )

    def load_published(self, folder: Path, dtype: Any) -> PreTrainedModel:
        place, facts = self._place(folder, "weights"), self._facts()
        config = read_config(place)
        if config.model_type != facts.model_type:
            raise SpecError(
                f"{place / 'config.json'}: model_type",
                repr(config.model_type),
                f"{facts.model_type!r}, the type of base model {self.known_as!r}",
                "name the folder of weights that were trained from this base model",
            )
        config.rope_parameters = {
            "rope_type": "default",
            "rope_theta": facts.theta,
            "partial_rotary_factor": facts.rotary_dim / facts.head_dim,
        }
        if facts.local is not None and facts.local.theta is not None:
            config.rope_parameters = {
                "full_attention": config.rope_parameters,
                "sliding_attention": {"rope_type": "default", "rope_theta": facts.local.theta},
            }
        config.max_position_embeddings = facts.trained_context
        return load_weights(place, dtype, config)

    def _facts(self) -> Facts:
        assert self.facts is not None, "config.json is read when the study is planned"
        return self.facts


MODEL = HubModel
