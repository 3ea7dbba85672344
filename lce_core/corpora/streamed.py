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

import hashlib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import Field

from lce_core.corpora import Block, Document, Place, StreamedCorpus
from lce_core.corpora._files import ListedDomains, files_below, require_utf8_names
from lce_core.corpora._rows import ROW_FORMATS, unreadable
from lce_core.errors import DataError
from lce_core.evidence import calls
from lce_core.hub import is_address, remote_files
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

    def digest(self, folders: Mapping[str, Path]) -> str:
        place = self._location(folders)
        if is_address(place):
            return str(place)  # it contains the commit
        digest = hashlib.sha256()
        for name in self._paths(place)[1]:
            try:
                content = sha256_of(place / name)
            except OSError as error:
                raise unreadable(place / name, error.strerror) from error
            digest.update(f"{content} {name}\n".encode())
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
            for _, domain, text in self._read(beginning + name, self.domain_field, None, rows):
                if seen == self.num_documents:
                    break
                rows, seen, characters = rows + 1, seen + 1, characters + len(text)
                pending.append(Document(f"{name}:{rows}", domain, text))
                if characters >= BLOCK_CHARACTERS or len(pending) >= BLOCK_ROWS:
                    yield Block(tuple(pending), Place(number, rows, seen))
                    pending, characters = [], 0
            # Yield even an empty block, so that a resumed reader skips this file.
            yield Block(tuple(pending), Place(number + 1, 0, seen))

    def _paths(self, place: Path) -> tuple[str, list[str]]:
        """Return the folder or hub URL, with a slash at the end, and the files to read."""
        if is_address(place):
            beginning, names = remote_files(place)
        else:
            beginning, names = f"{place}/", files_below(place)[0]
        chosen = [n for n in names if any(fnmatchcase(n, pattern) for pattern in self.files)]
        if not chosen:
            raise DataError(
                place,
                f"no file that matches {', '.join(self.files)}",
                "parquet files or JSON lines",
                "set `files` to patterns that match files of this data set, or name another folder",
            )
        for name in chosen:
            if not name.endswith(ROW_FORMATS):
                raise DataError(
                    beginning + name,
                    "a file of unknown format",
                    "names that end in .parquet, .jsonl or .json; the JSON formats also with .gz or"
                    " .zst",
                    "change `files` to match only such names",
                )
        require_utf8_names(place, chosen)
        return beginning, sorted(chosen)


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
