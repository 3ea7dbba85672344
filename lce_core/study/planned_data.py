"""Plan a study's data: digests of local data and weights, and the steps that prepare text."""

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
    """The digest of a plug-in's local input, or the reason why the input is missing."""

    digest: str | None
    absent: str | None

    @classmethod
    def of(cls, digest: Callable[[], str | None]) -> Data:
        """Call `digest`; record the reason if it raises UnavailableError.

        Raises:
          DataError: if the data exists but cannot be read.
        """
        try:
            return cls(digest(), None)
        except UnavailableError as error:
            return cls(None, str(error))


@dataclass(frozen=True)
class Base:
    """A base model with its local configuration, or the reason why that is missing."""

    model: LanguageModel
    weights: str | None
    """Digest of weights from a folder; None for hub weights, which are pinned by revision."""
    absent: str | None

    @classmethod
    def of(cls, model: LanguageModel, folder: Path | None) -> Base:
        """Resolve the model's configuration and compute the digest of its folder, if any.

        Raises:
          SpecError: if the model's architecture supports no method.
          DataError: if the configuration or a weights file is broken.
          UnavailableError: if the folder cannot be read.
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
    """The study's corpus, tokenized for one base model."""

    study: StudySpec
    base: Base
    corpus: Data

    @property
    def base_model(self) -> LanguageModel:
        """Base model that owns the tokenizer."""
        return self.base.model

    @property
    def weights(self) -> str | None:
        """Digest of weights from a folder; None for hub weights."""
        return self.base.weights

    @property
    def absent(self) -> str | None:
        """Reason why the base model or the corpus is missing; None if both are here."""
        return self.base.absent or self.corpus.absent

    def tokens(self) -> Step | None:
        """Make the token shards step; return None if the corpus is not streamed."""
        if not isinstance(self.study.corpus, StreamedCorpus):
            return None
        spec = TokensSpec(
            corpus=self.study.corpus, digest=self.corpus.digest, tokenizer=self._tokenizer()
        )
        return make_step(spec, self._name(), {}, self._axes())

    def rows(self, row_length: int, num_rows: int, seed: int, add: Callable[[Step], Step]) -> Step:
        """Make the packed rows step; `add` puts its parent, the token shards, into the plan."""
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
        """Make the held-out text step; `add` puts its parent, the token shards, into the plan."""
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
