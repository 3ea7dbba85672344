"""The data of a study in its plan: digests of what lies on this machine, and steps that cut it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lce_core.corpora import StreamedCorpus
from lce_core.errors import UnavailableError
from lce_core.models import LanguageModel, require_whole, weights_digest
from lce_core.store.steps import Step, make_step
from lce_core.study.spec import StudySpec
from lce_core.study.step_kinds import HeldOutSpec, RowsSpec, Tokenizer, TokensSpec


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
class Base:
    """A base model as far as it is known on this machine, or why nothing is."""

    model: LanguageModel
    weights: str | None
    """The digest of weights from a folder; the hub's are pinned by their revision."""
    absent: str | None

    @classmethod
    def of(cls, model: LanguageModel, folder: Path | None) -> Base:
        """The model with what its configuration says, and the digest of its folder.

        Raises:
          SpecError: no method can be put on the model.
          DataError: its configuration or a file of its weights is broken.
          UnavailableError: the folder cannot be read.
        """
        try:
            known = model.resolved(folder)
        except UnavailableError as error:
            return cls(model, None, str(error))
        if folder is None:
            return cls(known, None, None)
        require_whole(folder)
        return cls(known, weights_digest(folder), None)


@dataclass(frozen=True)
class Text:
    """The study's corpus under one base model's tokenizer."""

    study: StudySpec
    base: Base
    corpus: Data

    @property
    def base_model(self) -> LanguageModel:
        """Whose tokenizer it is."""
        return self.base.model

    @property
    def weights(self) -> str | None:
        """The digest of weights from a folder."""
        return self.base.weights

    @property
    def absent(self) -> str | None:
        """Why there is neither text nor model."""
        return self.base.absent or self.corpus.absent

    def tokens(self) -> Step | None:
        """Token shards, of a corpus that is streamed."""
        if not isinstance(self.study.corpus, StreamedCorpus):
            return None
        spec = TokensSpec(
            corpus=self.study.corpus, digest=self.corpus.digest, tokenizer=self._tokenizer()
        )
        return make_step(spec, self._name(), {}, self._axes())

    def rows(self, row_length: int, num_rows: int, seed: int, add: Callable[[Step], Step]) -> Step:
        """Packed training rows; `add` puts what they are cut from into the plan."""
        spec = RowsSpec(
            corpus=self.study.corpus,
            digest=self.corpus.digest,
            tokenizer=self._tokenizer(),
            row_length=row_length,
            num_rows=num_rows,
            upsampling=self.study.upsampling,
            seed=seed,
        )
        return make_step(
            spec, f"{self._name()}-{row_length}-s{seed}", self._cut_from(add), self._axes()
        )

    def held_out(self, add: Callable[[Step], Step]) -> Step:
        """Tokenised held-out text; `add` puts what it is cut from into the plan."""
        spec = HeldOutSpec(
            corpus=self.study.corpus,
            digest=self.corpus.digest,
            tokenizer=self._tokenizer(),
            tokens_per_domain=self.study.evaluation.held_out_tokens,
        )
        return make_step(spec, self._name(), self._cut_from(add), self._axes())

    def _cut_from(self, add: Callable[[Step], Step]) -> dict[str, Step]:
        tokens = self.tokens()
        return {} if tokens is None else {tokens.kind: add(tokens)}

    def _name(self) -> str:
        return f"{self.study.corpus.plugin_name}-{self.base_model.known_as}"

    def _axes(self) -> dict[str, str]:
        return {"base_model": self.base_model.known_as}

    def _tokenizer(self) -> Tokenizer:
        model = self.base_model
        return Tokenizer(
            name=model.plugin_name,
            version=model.plugin_version,
            weights=self.weights,
            parameters=model.tokenizer_parameters(),
        )
