"""Text sources, one file each: documents in a reproducible order, split into train and held out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lce_core.registry import Plugin, Registry

Split = Literal["train", "held_out"]


@dataclass(frozen=True)
class Document:
    """One text of a source."""

    name: str
    """Stable name within the corpus (relative path, or path and line)."""
    domain: str
    """Domain whose share of tokens sampling keeps ("code", "prose", ...)."""
    text: str


class Corpus(Plugin):
    """Base of all text sources."""

    def domains(self) -> tuple[str, ...]:
        """Names of the domains, in a fixed order."""
        raise NotImplementedError

    def digest(self, folders: Mapping[str, Path]) -> str:
        """sha256 over names and contents of all documents: the data's identity.

        Args:
          folders: folders named by the user in `Execution.data_folders`.

        Raises:
          UnavailableError: the data is not on this machine; says how to get it.
          DataError: an unreadable file, not UTF-8, or nothing to read.
        """
        raise NotImplementedError

    def documents(self, split: Split, folders: Mapping[str, Path]) -> Iterator[Document]:
        """All documents of a split, in the same order on every machine with the same files."""
        raise NotImplementedError


CORPORA: Registry[Corpus] = Registry("lce_core.corpora", "CORPUS", Corpus)
