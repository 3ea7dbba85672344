"""Text sources of studies, one file each. A source yields documents in a reproducible order.

A study trains on the documents of the split "train" and evaluates on those of the split "held_out".
"""

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
    """Unique name in the corpus: the file's relative path, with the line for files of many texts.
    """
    domain: str
    """Kind of text ("code", "prose", ...). Sampling keeps each domain's fraction."""
    text: str


class Corpus(Plugin):
    """Base class of text sources."""

    def domains(self) -> tuple[str, ...]:
        """Return the names of all domains, in a fixed order."""
        raise NotImplementedError

    def digest(self, folders: Mapping[str, Path]) -> str:
        """Return a string that changes with the text; it is part of the ids of dependent steps.

        It is the sha256 over names and contents of all documents, or the address of a hub commit.

        Args:
          folders: folders named by the user in `Execution.data_folders`.

        Raises:
          UnavailableError: if the data is not on this machine; the message says how to get it.
          DataError: if a file is unreadable or not UTF-8, or no file matches.
        """
        raise NotImplementedError

    def documents(self, split: Split, folders: Mapping[str, Path]) -> Iterator[Document]:
        """Yield all documents of a split, in an order that depends only on the files."""
        raise NotImplementedError


@dataclass(frozen=True)
class Place:
    """Position in a streamed source from which an interrupted reader resumes."""

    file: int = 0
    """Number of files read completely."""
    row: int = 0
    """Number of rows already read from the next file."""
    documents: int = 0
    """Total number of documents read."""


@dataclass(frozen=True)
class Block:
    """Consecutive documents of a source, after which a reader can save its position."""

    documents: tuple[Document, ...]
    end: Place
    """Position from which the next block is read."""


class StreamedCorpus(Corpus):
    """Base class of text sources from which an interrupted reader resumes after any block.

    One step of a study tokenizes the source and saves token shards. All training rows and held-out
    texts with the same tokenizer are cut from these shards.
    """

    def split(self, name: str) -> Split:
        """Return the split of the document with this name."""
        raise NotImplementedError

    def blocks(self, folders: Mapping[str, Path], start: Place) -> Iterator[Block]:
        """Yield the documents of both splits in blocks, from `start` on.

        Block boundaries depend on the source alone, so a resumed reader yields the same blocks.

        Args:
          folders: folders named by the user in `Execution.data_folders`.
          start: `Place()`, or the `end` of an earlier block.

        Raises:
          UnavailableError: if the data is neither on this machine nor on a reachable hub.
          DataError: if a file or document cannot be used, or no file matches.
        """
        raise NotImplementedError

    def documents(self, split: Split, folders: Mapping[str, Path]) -> Iterator[Document]:
        """Yield all documents of a split, in the source's order."""
        for block in self.blocks(folders, Place()):
            yield from (d for d in block.documents if self.split(d.name) == split)


CORPORA: Registry[Corpus] = Registry("lce_core.corpora", "CORPUS", Corpus)
