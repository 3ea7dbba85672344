"""Text sources whose domains a study lists, so that it can be planned without the data."""

from __future__ import annotations

from pydantic import Field, field_validator

from lce_core.corpora import Corpus
from lce_core.errors import SpecError


class ListedDomains(Corpus):
    """Base of text sources in a folder that a study names."""

    folder: str = "text"
    """Name under which `data_folders` says where it lies."""
    text_field: str = "text"
    """Key or column of a document's text; in `streamed` a dot goes into a nested one."""
    domain_names: tuple[str, ...] = Field(default=("text",), min_length=1)
    """Every domain that occurs; another one in the files is an error."""

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
        """The domains the study lists, in its order."""
        return self.domain_names
