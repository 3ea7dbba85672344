"""Shared code of the text sources: domains and splits of documents, and errors about files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field, field_validator

from lce_core.corpora import Corpus, Split
from lce_core.errors import DataError, SpecError, UnavailableError
from lce_core.hub import given_names, is_address


class ListedDomains(Corpus):
    """A text source in a data folder or on the hub.

    The study lists the domains of the text, so that planning need not read the text.
    """

    folder: str = "text"
    """Name of the data set. `data_folders` gives its path or hub address under this name."""
    text_field: str = "text"
    """JSON key or column that contains a document's text; in `streamed`, "a.b" is the field b of
    the column a."""
    domain_names: tuple[str, ...] = Field(default=("text",), min_length=1)
    """All domains of the documents. A document of another domain raises an error."""

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

    def _location(self, folders: Mapping[str, Path]) -> Path:
        """Return what `data_folders` gives for this folder: a path, or a hub data set's address.

        Raises:
          UnavailableError: if `data_folders` lacks the name `folder`, or gives a path that is no
            folder.
        """
        place = folders.get(self.folder)
        if place is None or not (is_address(place) or place.is_dir()):
            raise UnavailableError(
                f"{self.plugin_name}: folder {self.folder!r}",
                f"no folder of this name{given_names(folders)}"
                if place is None
                else f"no folder at {place}",
                "a data folder on this machine or a data set on the hub",
                f"give `--data-folder {self.folder}=FOLDER`, `--data-folder"
                f" {self.folder}=hub:OWNER/NAME@COMMIT` or `--data-folder"
                f" {self.folder}=datasets:OWNER/NAME@COMMIT:CONFIG:SPLIT`, or set `data_folders` in"
                " an execution file",
            )
        return place


def split_of(name: str, held_out_percent: float) -> Split:
    """Return the split of the document or file with this name.

    The first 8 bytes of sha256(name), as a big-endian integer divided by 2^64, are a number from 0
    to 1. A document is held out if this number is below held_out_percent / 100. The split of a
    document therefore does not depend on other documents.
    """
    head = hashlib.sha256(name.encode("utf-8")).digest()[:8]
    return "held_out" if int.from_bytes(head, "big") * 100 < held_out_percent * 2**64 else "train"


def decoded(data: bytes, file: Path, offset: int = 0) -> str:
    """Decode UTF-8 bytes that start at byte `offset` of a file.

    Raises:
      DataError: if the bytes are not UTF-8; the message has the position of the first such byte in
        the file.
    """
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise not_utf8(file, offset + error.start) from error


def not_utf8(file: Path, byte: int) -> DataError:
    return DataError(
        file, f"byte {byte}, which is not UTF-8", "UTF-8 text", "convert the file to UTF-8"
    )


def unreadable(file: Path, error: OSError) -> DataError:
    return DataError(
        file,
        f"a file that cannot be read ({error.strerror})",
        "a readable file",
        "check its permissions",
    )
