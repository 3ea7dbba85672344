"""The data of a study in its plan: digests of what lies on this machine, and steps that cut it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lce_core.errors import UnavailableError
from lce_core.models import LanguageModel
from lce_core.store.steps import Step, make_step
from lce_core.study.spec import StudySpec
from lce_core.study.step_kinds import HeldOutSpec, RowsSpec, Tokenizer


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
    weights: str | None
    """The digest of weights from a folder; the hub's are pinned by the plug-in's revision."""

    def rows(self, row_length: int, num_rows: int, seed: int) -> Step:
        """Packed training rows."""
        spec = RowsSpec(
            corpus=self.study.corpus,
            digest=self.corpus.digest,
            tokenizer=self._tokenizer(),
            row_length=row_length,
            num_rows=num_rows,
            upsampling=self.study.upsampling,
            seed=seed,
        )
        return make_step(spec, f"{self._name()}-{row_length}-s{seed}", {})

    def held_out(self) -> Step:
        """Tokenised held-out text."""
        spec = HeldOutSpec(
            corpus=self.study.corpus,
            digest=self.corpus.digest,
            tokenizer=self._tokenizer(),
            tokens_per_domain=self.study.evaluation.held_out_tokens,
        )
        return make_step(spec, self._name(), {})

    def _name(self) -> str:
        return f"{self.study.corpus.plugin_name}-{self.base_model.plugin_name}"

    def _tokenizer(self) -> Tokenizer:
        name, version = self.base_model.plugin_name, self.base_model.plugin_version
        return Tokenizer(name=name, version=version, weights=self.weights)
