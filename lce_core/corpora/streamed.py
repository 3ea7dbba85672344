"""A data set of any size in parquet or JSON lines, streamed from a folder or a hub.

The study names the data set (`folder: slimpajama`); each machine maps the name to a path, to the
files `hub:OWNER/NAME@COMMIT`, or to one split of a data set in the form that `load_dataset` reads,
`datasets:OWNER/NAME@COMMIT:CONFIG:SPLIT`. The text of a hub data set is not saved on this machine,
only its tokens.
The files that match `files` are read one by one in path order, so an interrupted run can resume
within a file. A hash of a document's name (path and row) decides whether it is held out from
training.

Source: own; SlimPajama-627B has its text in `text` and its domain in `meta.redpajama_set_name`.
"""

from __future__ import annotations

import hashlib
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from lce_core.corpora import Block, Document, Place, Split, StreamedCorpus
from lce_core.corpora._files import ListedDomains, split_of
from lce_core.errors import DataError
from lce_core.evidence import calls
from lce_core.hub import http_errors, is_address, listed, rows_address
from lce_core.hub_rows import split_files
from lce_core.registry import Source
from lce_core.store.file_facts import sha256_of

VERSION = 1
SOURCE = Source(
    paper="own",
    place="streaming data sets, as load_dataset(..., streaming=True) reads them",
    reference="https://huggingface.co/datasets/cerebras/SlimPajama-627B",
)

BLOCK_CHARACTERS = 500_000
"""A block of documents ends when it has at least this many characters."""
BLOCK_ROWS = 1024
"""Maximum number of documents of a block; it limits blocks of very short documents."""
_KINDS = {".parquet": "parquet", ".jsonl": "json", ".json": "json"}
"""Name of a file's format in the `datasets` library, by file ending."""
_PACKED = (".gz", ".zst")


class Streamed(ListedDomains, StreamedCorpus):
    """Rows of parquet files and of JSON lines (also `.gz` and `.zst`), in path and row order."""

    files: tuple[str, ...] = Field(
        default=("*.parquet", "*.jsonl", "*.jsonl.gz", "*.jsonl.zst"), min_length=1
    )
    """Patterns of the files to read, as paths within the data set; `*` also matches slashes."""
    domain_field: str | None = None
    """Column that contains a document's domain; "a.b" is the field b of the column a. With None,
    all documents belong to the first of `domain_names`."""
    held_out_percent: float = Field(default=1.0, gt=0, lt=100)
    """Percentage of documents (by a hash of their names) held out for evaluation."""
    num_documents: int | None = Field(default=None, ge=1)
    """Number of documents to read, from the start of the data set; None reads all."""

    def split(self, name: str) -> Split:
        return split_of(name, self.held_out_percent)

    def digest(self, folders: Mapping[str, Path]) -> str:
        """Return the address of the hub data set, or the sha256 over the files of the folder.

        An address contains the commit, so it identifies the text.
        """
        place = self._location(folders)
        if is_address(place):
            return str(place)
        digest = hashlib.sha256()
        for name in self._paths(place)[1]:
            with _readable(f"{place / name}"):
                digest.update(f"{sha256_of(place / name)} {name}\n".encode())
        return digest.hexdigest()

    def blocks(self, folders: Mapping[str, Path], start: Place) -> Iterator[Block]:
        """Yield blocks of at most `BLOCK_ROWS` documents; all documents of a block are in one file.

        A block also ends with the document at which it reaches `BLOCK_CHARACTERS`. As this document
        is not cut, a block can be much longer.
        """
        beginning, names = self._paths(self._location(folders))
        seen = start.documents
        for number, name in enumerate(names[start.file :], start=start.file):
            if seen == self.num_documents:
                return
            rows = start.row if number == start.file else 0
            pending: list[Document] = []
            characters = 0
            for document in self._documents(beginning + name, name, rows):
                if seen == self.num_documents:
                    break
                pending.append(document)
                rows, seen, characters = rows + 1, seen + 1, characters + len(document.text)
                if characters >= BLOCK_CHARACTERS or len(pending) >= BLOCK_ROWS:
                    yield Block(tuple(pending), Place(number, rows, seen))
                    pending, characters = [], 0
            # Yield even an empty block, so that a resumed reader skips this file.
            yield Block(tuple(pending), Place(number + 1, 0, seen))

    def _paths(self, place: Path) -> tuple[str, list[str]]:
        """Return the folder or hub URL, with a slash at the end, and the files to read."""
        if address := rows_address(place):
            beginning, names = split_files(address)
        elif is_address(place):
            beginning, names = listed(place)
        else:
            beginning = f"{place}/"
            names = [p.relative_to(place).as_posix() for p in place.rglob("*") if p.is_file()]
        chosen = [n for n in names if any(fnmatchcase(n, pattern) for pattern in self.files)]
        if not chosen:
            raise DataError(
                place,
                f"no file that matches {', '.join(self.files)}",
                "parquet files or JSON lines",
                "set `files` to patterns that match files of this data set, or name another folder",
            )
        for name in chosen:
            if _kind(name) is None:
                raise DataError(
                    beginning + name,
                    "a file of unknown format",
                    "names that end in .parquet, .jsonl or .json; the JSON formats also with .gz or"
                    " .zst",
                    "change `files` to match only such names",
                )
        return beginning, sorted(chosen)

    def _documents(self, file: str, name: str, skipped: int) -> Iterator[Document]:
        row = 0
        for table in _tables(file, _kind(name) or ""):
            first, row = row, row + table.num_rows
            if row <= skipped:
                continue
            table = table.slice(max(0, skipped - first))
            texts = _strings(table, self.text_field, file, "text_field")
            domains = None
            if self.domain_field is not None:
                domains = _strings(table, self.domain_field, file, "domain_field")
            for offset, text in enumerate(texts):
                number = row - table.num_rows + offset + 1
                domain = self.domain_names[0] if domains is None else domains[offset]
                yield self._document(f"{name}:{number}", f"{file}:{number}", text, domain)

    def _document(self, name: str, where: str, text: Any, domain: Any) -> Document:
        if not isinstance(text, str):
            raise DataError(
                where,
                f"the text {text!r}",
                f"a string in the column {self.text_field!r}",
                "correct the row, or set text_field",
            )
        if domain not in self.domain_names:
            raise DataError(
                where,
                f"domain {domain!r}",
                f"one of {', '.join(self.domain_names)}",
                "add it to domain_names, or set domain_field",
            )
        return Document(name, domain, text)


CORPUS = Streamed
EVIDENCE = (
    calls(
        Streamed.split,
        "train",
        "printf a.parquet:1 | sha256sum",
        name="a.parquet:1",
        parameters={"held_out_percent": 5.0},
    ),
)


def _kind(name: str) -> str | None:
    """Return the name of a file's format in the `datasets` library; None if it is not supported."""
    packed = name.endswith(_PACKED)
    kind = _KINDS.get(Path(Path(name).stem if packed else name).suffix)
    return None if packed and kind == "parquet" else kind


def _tables(file: str, kind: str) -> Iterator[pa.Table]:
    """Yield the file's rows in tables of at most `BLOCK_ROWS` rows.

    Raises:
      DataError: if the file cannot be read in the format that its name implies.
      OSError: if the connection to the hub broke. A retry resumes after the last complete block.
    """
    with _readable(file):
        from datasets import load_dataset

        # Without a batch size, parquet files are read by row group, which may be the whole file.
        options = {"batch_size": BLOCK_ROWS} if kind == "parquet" else {}
        try:
            rows = load_dataset(kind, data_files=[file], split="train", streaming=True, **options)
        # Raised for JSON lines without any line.
        except StopIteration:
            return
        yield from rows.with_format("arrow").iter(batch_size=BLOCK_ROWS)


@contextmanager
def _readable(file: str) -> Iterator[None]:
    """Convert errors of the reading libraries into DataError, or ConnectionError for a lost hub."""
    try:
        yield
    except _reading_errors() as error:
        if file.startswith("hf://") and isinstance(error, http_errors()):
            raise ConnectionError(f"{file}: {type(error).__name__}: {error}") from error
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise DataError(
            file,
            f"a file that cannot be read ({reason.rstrip(': ')})",
            "whole rows of parquet or JSON",
            "get the file again, or change `files` to exclude it",
        ) from error


def _reading_errors() -> tuple[type[Exception], ...]:
    # Zstandard's error class exists only once its package is loaded.
    unpacking = sys.modules.get("backports.zstd")
    packed = () if unpacking is None else (unpacking.ZstdError,)
    return (ValueError, EOFError, zlib.error, *packed, *http_errors())


def _strings(table: pa.Table, field: str, file: str, setting: str) -> list[Any]:
    """Return the values of the column `field`; "a.b" is the field b of the column a."""
    names = field.split(".")
    if names[0] not in table.column_names:
        raise DataError(
            file,
            f"the columns {', '.join(table.column_names)}",
            f"a column {names[0]!r}",
            f"set {setting} to one of these, or change `files` to exclude the file",
        )
    column = table[names[0]]
    for depth, name in enumerate(names[1:], start=1):
        found = [f.name for f in column.type] if pa.types.is_struct(column.type) else []
        if name not in found:
            raise DataError(
                file,
                f"{'.'.join(names[:depth])!r} of type {column.type}",
                f"a column with the nested column {name!r}",
                f"set {setting} to an existing column",
            )
        column = pc.struct_field(column, name)
    with _readable(file):
        return list(column.to_pylist())
