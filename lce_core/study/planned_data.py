"""Plan the steps that tokenize and pack text, and compute the digests of local data and weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lce_core.corpora import StreamedCorpus
from lce_core.errors import UnavailableError
from lce_core.models import LanguageModel, require_model, require_whole, weights_digest
from lce_core.store.steps import Step, make_step
from lce_core.study.spec import StudySpec
from lce_core.study.step_kinds import HeldOutSpec, RowsSpec, Tokenizer, TokensSpec


@dataclass(frozen=True)
class Data:
    """Digest of a plug-in's local input, or why it is missing; both None without local input."""

    digest: str | None
    absent: str | None

    @classmethod
    def of(cls, digest: Callable[[], str | None]) -> Data:
        """Store the result of `digest`, or the message of its UnavailableError as `absent`."""
        try:
            return cls(digest(), None)
        except UnavailableError as error:
            return cls(None, str(error))


@dataclass(frozen=True)
class Base:
    """A base model of the study with its configuration and the digest of its weights."""

    model: LanguageModel
    weights: str | None
    """Digest of a local folder; None for hub weights, which a revision identifies."""
    absent: str | None
    """Why the model's configuration is missing."""

    @classmethod
    def of(cls, model: LanguageModel, folder: Path | None) -> Base:
        """Resolve the model's configuration and compute its folder's digest, if any."""
        try:
            known = model.resolved(folder)
        except UnavailableError as error:
            return cls(model, None, str(error))
        if folder is None:
            return cls(known, None, None)
        # A model of the user's own has all its files in the folder.
        (require_model if known.reads_config else require_whole)(folder)
        return cls(known, weights_digest(folder), None)


Steps = dict[str, Step]
"""Planned steps by fingerprint, parents before children."""


def add_step(steps: Steps, step: Step) -> Step:
    """Add `step` unless its fingerprint is there; return the step in `steps`."""
    return steps.setdefault(step.fingerprint, step)


@dataclass(frozen=True)
class Text:
    """Adds steps to a plan that tokenize and pack the corpus for one base model."""

    study: StudySpec
    base: Base
    corpus: Data

    @property
    def base_model(self) -> LanguageModel:
        return self.base.model

    @property
    def weights(self) -> str | None:
        return self.base.weights

    @property
    def absent(self) -> str | None:
        """Why the base model or the corpus is missing."""
        return self.base.absent or self.corpus.absent

    def rows(self, steps: Steps, row_length: int, num_rows: int, seed: int) -> Step:
        """Add the step that packs training rows, and for a streamed corpus its shards."""
        spec = RowsSpec(
            corpus=self.study.corpus,
            digest=self.corpus.digest,
            tokenizer=self._tokenizer(),
            row_length=row_length,
            num_rows=num_rows,
            upsampling=self.study.upsampling,
            seed=seed,
            leaves_out_copies=self.study.corpus.leaves_out_copies,
        )
        name = f"{self._name()}-{row_length}-s{seed}"
        return add_step(steps, make_step(spec, name, self._shards(steps), self._axes()))

    def held_out(self, steps: Steps) -> Step:
        """Add the step that tokenizes held-out text, and for a streamed corpus the shards."""
        spec = HeldOutSpec(
            corpus=self.study.corpus,
            digest=self.corpus.digest,
            tokenizer=self._tokenizer(),
            tokens_per_domain=self.study.evaluation.held_out_tokens,
            document_tokens=self.study.evaluation.held_out_document_tokens,
        )
        return add_step(steps, make_step(spec, self._name(), self._shards(steps), self._axes()))

    def validation(self, steps: Steps) -> Step:
        """Add the step that tokenizes validation text, which shares no document with `held_out`."""
        reported = self.held_out(steps)
        tune = self.study.tune
        changes = {
            "after_tokens": self.study.evaluation.held_out_tokens,
            "tokens_per_domain": self.study.validation_tokens,
            # Trials score each domain; a search takes the texts of the domains that have any.
            "needed": ([*tune.domains] or None) if tune else [],
        }
        spec = HeldOutSpec.parse({**reported.spec, **changes})
        name = f"{self._name()}-validation"
        return add_step(steps, make_step(spec, name, self._shards(steps), self._axes()))

    def _shards(self, steps: Steps) -> dict[str, Step]:
        """Add the step that writes token shards, as a parent by role; {} if not streamed."""
        if not isinstance(self.study.corpus, StreamedCorpus):
            return {}
        spec = TokensSpec(
            corpus=self.study.corpus, digest=self.corpus.digest, tokenizer=self._tokenizer()
        )
        tokens = make_step(spec, self._name(), {}, self._axes())
        return {tokens.kind: add_step(steps, tokens)}

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
