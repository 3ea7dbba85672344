"""The data of a study in its plan: digests of what lies on this machine, and steps that cut it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lce_core.errors import UnavailableError
from lce_core.models import LanguageModel
from lce_core.store.steps import Step, make_step
from lce_core.study.spec import StudySpec


@dataclass(frozen=True)
class Data:
    """The digest of what a plug-in reads from this machine, or why it is out of reach."""

    digest: str | None
    absent: str | None

    @classmethod
    def of(cls, digest: Callable[[], str | None]) -> Data:
        """What `digest` gives.

        Raises:
          DataError: the data is there but cannot be read.
        """
        try:
            return cls(digest(), None)
        except UnavailableError as error:
            return cls(None, str(error))


@dataclass(frozen=True)
class Text:
    """The study's corpus under one base model's tokenizer."""

    study: StudySpec
    base_model: LanguageModel
    corpus: Data
    weights: Mapping[str, str]
    """The digest of weights from a folder; the hub's are pinned by the plug-in's revision."""

    def rows(self, row_length: int, num_rows: int, seed: int) -> Step:
        """Packed training rows."""
        spec = {
            **self._spec(),
            "row_length": row_length,
            "num_rows": num_rows,
            "upsampling": self.study.upsampling.identity(),
            "seed": seed,
        }
        return make_step("rows", f"{self._name()}-{row_length}-s{seed}", spec, {})

    def held_out(self) -> Step:
        """Tokenised held-out text."""
        spec = {
            **self._spec(),
            "tokens_per_domain": self.study.evaluation.held_out_tokens,
        }
        return make_step("held_out", self._name(), spec, {})

    def _name(self) -> str:
        return f"{self.study.corpus.plugin_name}-{self.base_model.plugin_name}"

    def _spec(self) -> dict[str, Any]:
        # Only the tokenizer of a base model matters for text, so its parameters stay out.
        name, version = self.base_model.plugin_name, self.base_model.plugin_version
        return {
            "corpus": self.study.corpus.identity(),
            "digest": self.corpus.digest,
            "tokenizer": {"name": name, "version": version, **self.weights},
        }
