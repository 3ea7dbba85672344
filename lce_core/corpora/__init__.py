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
    """Domain ("code", "prose", ...); sampling keeps each domain's share of tokens."""
    text: str


class Corpus(Plugin):
    """Base of all text sources."""

    def domains(self) -> tuple[str, ...]:
        """Return the names of the domains, in a fixed order."""
        raise NotImplementedError

    def digest(self, folders: Mapping[str, Path]) -> str:
        """Return the identity of the data, part of every fingerprint that depends on its text.

        This is the sha256 over names and contents of all documents, or an address that pins them.

        Args:
          folders: folders named by the user in `Execution.data_folders`.

        Raises:
          UnavailableError: if the data is not on this machine; the message says how to get it.
          DataError: if a file is unreadable or not UTF-8, or there is nothing to read.
        """
        raise NotImplementedError

    def documents(self, split: Split, folders: Mapping[str, Path]) -> Iterator[Document]:
        """Yield all documents of a split, in an order that depends only on the files."""
        raise NotImplementedError


@dataclass(frozen=True)
class Place:
    """Position in a streamed source at which reading starts or continues."""

    file: int = 0
    """Number of files read to their end."""
    row: int = 0
    """Number of rows read from the next file."""
    documents: int = 0
    """Total number of documents read."""


@dataclass(frozen=True)
class Block:
    """Consecutive documents of a source."""

    documents: tuple[Document, ...]
    end: Place
    """Position where the next block starts."""


class StreamedCorpus(Corpus):
    """Base of text sources for which reading can start at the end of any block.

    A study tokenizes such a source once, in a step of its own, whose token shards all training rows
    and held-out texts of the tokenizer share.
    """

    def split(self, name: str) -> Split:
        """Return the split of the document `name`."""
        raise NotImplementedError

    def blocks(self, folders: Mapping[str, Path], start: Place) -> Iterator[Block]:
        """Yield all documents of both splits from `start` on, which must be the end of a block.

        Block boundaries depend on the source alone, so resuming yields the same blocks.

        Raises:
          UnavailableError: if the data is neither on this machine nor on a hub that answers.
          DataError: if a file or document cannot be used, or there is nothing to read.
        """
        raise NotImplementedError

    def documents(self, split: Split, folders: Mapping[str, Path]) -> Iterator[Document]:
        """Yield all documents of a split, in the source's order."""
        for block in self.blocks(folders, Place()):
            yield from (d for d in block.documents if self.split(d.name) == split)


CORPORA: Registry[Corpus] = Registry("lce_core.corpora", "CORPUS", Corpus)
