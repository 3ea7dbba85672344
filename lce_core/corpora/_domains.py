"""Base class of text sources that read a user's folder: `jsonl_folder` and `streamed`."""

from __future__ import annotations

from pydantic import Field, field_validator

from lce_core.corpora import Corpus
from lce_core.errors import SpecError


class ListedDomains(Corpus):
    """A text source in a folder. The study lists its domains, so that planning reads no data."""

    folder: str = "text"
    """Name of the folder, a key of `data_folders`, which gives its path."""
    text_field: str = "text"
    """JSON key or column of a document's text; in `streamed`, "a.b" is column b nested in a."""
    domain_names: tuple[str, ...] = Field(default=("text",), min_length=1)
    """All domains. A document of another domain is an error."""

    @field_validator("domain_names")
    @classmethod
    def _distinct(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(names)) != len(names) or not all(names):
            raise SpecError(
                "domain_names",
                list(names),
                "distinct names that are not empty",
                "remove the repeated and empty ones",
            )
        return names

    def domains(self) -> tuple[str, ...]:
        return self.domain_names
