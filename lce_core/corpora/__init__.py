"""Text sources of studies (corpora), one plug-in file each.

A source yields documents in a reproducible order. A study trains on the documents of the split
"train" and evaluates on those of the split "held_out".
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from lce_core.registry import Plugin, Registry

Split = Literal["train", "held_out"]


@dataclass(frozen=True)
class Document:
    """One text of a source."""

    name: str
    """Name, unique in the corpus: the file's relative path, followed by ":" and the number of the
    line or row if the file contains many documents."""
    domain: str
    """Kind of text ("code", "prose", ...). Sampling keeps each domain's fraction."""
    text: str


class Corpus(Plugin):
    """Base class of text sources."""

    leaves_out_copies: ClassVar[bool] = True
    """If True, no model trains on a document whose text equals that of a held-out document."""

    def domains(self) -> tuple[str, ...]:
        raise NotImplementedError

    def digest(self, folders: Mapping[str, Path]) -> str:
        """Return a string that identifies the text; the ids of steps that read the text include it.

        It is the sha256 over names and contents of all files, or the address of a hub commit.
        `folders` has the local folder or hub address of each data set by name
        (`Execution.data_folders`).

        Raises:
          UnavailableError: if the data is neither on this machine nor on a reachable hub; the
            message says how to get it.
          DataError: if a file is unreadable or not UTF-8, or no file matches.
        """
        raise NotImplementedError

    def num_bytes(self, folders: Mapping[str, Path]) -> int | None:
        """Return the size of all files in bytes; None if that means to read or download them."""
        return None

    def notes(self, folders: Mapping[str, Path]) -> list[str]:
        """Return sentences about text that is left out, which `lce plan` shows."""
        return []

    def documents(self, split: Split, folders: Mapping[str, Path]) -> Iterator[Document]:
        """Yield all documents of a split, in an order that depends only on the files."""
        raise NotImplementedError


@dataclass(frozen=True)
class Place:
    """Position in a streamed source, at which an interrupted reader resumes."""

    file: int = 0
    """Number of files that were read to the end."""
    row: int = 0
    """Number of rows that were read from the next file."""
    documents: int = 0
    """Number of documents that were read in all files together."""


@dataclass(frozen=True)
class Block:
    """Consecutive documents of a source; a reader can save its position after each block."""

    documents: tuple[Document, ...]
    end: Place
    """Position in the source at which the next block starts."""


class StreamedCorpus(Corpus):
    """Base class of text sources from which an interrupted reader resumes after any block.

    One step of a study tokenises the source and saves the ids as token shards. All training rows
    and held-out texts with the same tokenizer are cut from these shards.
    """

    def split(self, name: str) -> Split:
        raise NotImplementedError

    def blocks(self, folders: Mapping[str, Path], start: Place) -> Iterator[Block]:
        """Yield the documents of both splits in blocks, from `start` on.

        Block boundaries depend on the source alone, so a resumed reader yields the same blocks.
        `start` is `Place()` or the `end` of an earlier block. Errors are those of `digest`.
        """
        raise NotImplementedError

    def documents(self, split: Split, folders: Mapping[str, Path]) -> Iterator[Document]:
        for block in self.blocks(folders, Place()):
            yield from (d for d in block.documents if self.split(d.name) == split)


CORPORA: Registry[Corpus] = Registry("lce_core.corpora", "CORPUS", Corpus)
