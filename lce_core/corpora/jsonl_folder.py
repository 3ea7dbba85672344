"""Your own text in a folder: `.jsonl` files with one document per line, and `.txt` files.

The study names the folder (`folder: my_text`); each machine maps the name to a path (`data_folders:
{my_text: /data/text}`). Each line of a `.jsonl` file is an object with a text and optionally a
domain. A `.txt` file is one document; its domain is the name of its top folder if the study lists
a domain of that name, else the first domain. `.jsonl` files are read line by line and may be larger
than memory. Rows on the hub that `lce fetch datasets:...` has downloaded are such a file. A hash of
a document's name (path, or path and line) decides whether it is held out
from training.

Source: own; JSON Lines as written by common data pipelines.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from lce_core.corpora import Document, Split
from lce_core.corpora._files import ListedDomains, decoded, not_utf8, split_of, unreadable
from lce_core.errors import DataError
from lce_core.evidence import calls
from lce_core.hub import is_address, local_folder
from lce_core.registry import Source
from lce_core.store.file_facts import fact_of

VERSION = 1
SOURCE = Source(paper="own", place="jsonlines.org, one JSON value a line", reference="own")

_BLOCK_BYTES = 1 << 20
_TEXT = "sha256 of UTF-8"
"""Name of the cached fact "sha256 of the file"; the file was also found to be UTF-8."""


class JsonlFolder(ListedDomains):
    """Documents of all files with one of `endings` below a folder, in path and line order."""

    domain_field: str = "domain"
    """JSON key of a document's domain; lines without this key belong to the first domain."""
    endings: ClassVar[tuple[str, ...]] = (".jsonl", ".txt")
    """Endings of the files that are read. Each file that is not `.jsonl` is one document."""
    held_out_percent: float = Field(default=5.0, gt=0, lt=100)
    """Percentage of documents (by a hash of their names) held out for evaluation."""

    def split(self, name: str) -> Split:
        return split_of(name, self.held_out_percent)

    def digest(self, folders: Mapping[str, Path]) -> str:
        """Return the sha256 over paths and contents of all files.

        The sha256 of an unchanged file comes from a cache (`lce_core.store.file_facts`). Text that
        is not UTF-8 raises DataError, so that a study fails before it computes anything.
        """
        root = self._root(folders)
        digest = hashlib.sha256()
        for name in self._files(root):
            file = root / name
            try:
                content = fact_of(_TEXT, file, [file], partial(_sha256_of_text, file))
            except OSError as error:
                raise unreadable(file, error) from error
            digest.update(f"{content} {name}\n".encode())
        return digest.hexdigest()

    def num_bytes(self, folders: Mapping[str, Path]) -> int | None:
        root = self._location(folders)
        if is_address(root):
            return None
        return sum((root / name).stat().st_size for name in self._files(root))

    def documents(self, split: Split, folders: Mapping[str, Path]) -> Iterator[Document]:
        root = self._root(folders)
        for name in self._files(root):
            file = root / name
            found = self._lines(file, name) if name.endswith(".jsonl") else self._text(file, name)
            for document in found:
                if self.split(document.name) == split:
                    yield document

    def _root(self, folders: Mapping[str, Path]) -> Path:
        return local_folder(self._location(folders), tuple(f"*{one}" for one in self.endings))

    def _files(self, root: Path) -> list[str]:
        """Return the paths of all text files relative to `root`, with slashes, sorted."""

        def refuse(error: OSError) -> None:
            raise unreadable(Path(error.filename), error) from error

        found = [
            (Path(folder) / name).relative_to(root).as_posix()
            for folder, _, files in os.walk(root, onerror=refuse)
            for name in files
            if name.endswith(self.endings)
        ]
        if not found:
            raise DataError(
                root,
                f"no {' or '.join(self.endings)} file",
                "a folder with text in such files",
                "put such files there, or name another folder",
            )
        for name in found:
            if not _is_utf8(name):
                raise DataError(
                    root,
                    f"the file name {name!r}, which is not UTF-8",
                    "file names in UTF-8",
                    "rename the file",
                )
        return sorted(found)

    def _text(self, file: Path, name: str) -> Iterator[Document]:
        top = name.split("/")[0]
        domain = top if top in self.domain_names else self.domain_names[0]
        try:
            data = file.read_bytes()
        except OSError as error:
            raise unreadable(file, error) from error
        yield Document(name, domain, decoded(data, file))

    def _lines(self, file: Path, name: str) -> Iterator[Document]:
        offset = 0
        try:
            with file.open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    text = decoded(line, file, offset)
                    offset += len(line)
                    if text.strip():
                        yield self._document(text, f"{file}:{number}", f"{name}:{number}")
        except OSError as error:
            raise unreadable(file, error) from error

    def _document(self, line: str, where: str, name: str) -> Document:
        try:
            entry: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(
                where,
                f"a line that is not JSON ({error})",
                "one JSON object a line",
                "correct or remove the line",
            ) from error
        text = entry.get(self.text_field) if isinstance(entry, dict) else None
        if not isinstance(text, str):
            raise DataError(
                where,
                f"no text under {self.text_field!r}",
                "an object with a string under this key",
                "correct the line, or set text_field",
            )
        if not _is_utf8(text):
            raise DataError(
                where,
                "half a surrogate pair, which is not UTF-8",
                "UTF-8 text",
                "correct or remove the line",
            )
        domain = entry.get(self.domain_field, self.domain_names[0])
        if domain not in self.domain_names:
            raise DataError(
                where,
                f"domain {domain!r}",
                f"one of {', '.join(self.domain_names)}",
                "add it to domain_names, or set domain_field",
            )
        return Document(name, domain, text)


CORPUS = JsonlFolder
EVIDENCE = (
    calls(
        JsonlFolder.split,
        "train",
        "printf a.jsonl:1 | sha256sum",
        name="a.jsonl:1",
        parameters={"held_out_percent": 5.0},
    ),
)


def _sha256_of_text(file: Path) -> str:
    digest, decoder = hashlib.sha256(), codecs.getincrementaldecoder("utf-8")()
    read = 0
    with file.open("rb") as blocks:
        while True:
            block = blocks.read(_BLOCK_BYTES)
            pending = len(decoder.getstate()[0])
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                raise not_utf8(file, read - pending + error.start) from error
            if not block:
                return digest.hexdigest()
            digest.update(block)
            read += len(block)


def _is_utf8(text: str) -> bool:
    """Return True if the text can be encoded in UTF-8.

    False if it contains a lone surrogate, which JSON escapes and file names can produce.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
