"""Text sources whose domains are listed in the study, so that planning needs no data."""

from __future__ import annotations

from pydantic import Field, field_validator

from lce_core.corpora import Corpus
from lce_core.errors import SpecError


class ListedDomains(Corpus):
    """Base of text sources in a folder that a study names."""

    folder: str = "text"
    """Name of the folder; `data_folders` gives its location."""
    text_field: str = "text"
    """Key or column of a document's text; in `streamed` a dot addresses a nested column."""
    domain_names: tuple[str, ...] = Field(default=("text",), min_length=1)
    """All domains; the files may contain no others."""

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
        """Return the domains in the order of the study."""
        return self.domain_names
