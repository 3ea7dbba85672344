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


@dataclass(frozen=True)
class Place:
    """Where the documents of a source go on."""

    file: int = 0
    """Files that have been read to their end."""
    row: int = 0
    """Rows of the next file that have been read."""
    documents: int = 0
    """Documents that have been read in all."""


@dataclass(frozen=True)
class Block:
    """Documents that follow each other in a source."""

    documents: tuple[Document, ...]
    end: Place
    """Where the next block begins."""


class StreamedCorpus(Corpus):
    """Base of text sources that are read once, from wherever they were left.

    Their tokens become a step of their own, which everything that is cut from them shares.
    """

    def split(self, name: str) -> Split:
        """The split of the document `name`."""
        raise NotImplementedError

    def blocks(self, folders: Mapping[str, Path], start: Place) -> Iterator[Block]:
        """All documents of both splits from `start` on, a place where a block has ended.

        Where blocks end depends on the source alone, so those from any end on are always the same.

        Raises:
          UnavailableError: the data are neither on this machine nor on a hub that answers.
          DataError: a file or document that cannot be used, or nothing to read.
        """
        raise NotImplementedError

    def documents(self, split: Split, folders: Mapping[str, Path]) -> Iterator[Document]:
        """All documents of a split, in the source's order."""
        for block in self.blocks(folders, Place()):
            yield from (d for d in block.documents if self.split(d.name) == split)


CORPORA: Registry[Corpus] = Registry("lce_core.corpora", "CORPUS", Corpus)
