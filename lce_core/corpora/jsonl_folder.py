"""Your own text in a folder: `.jsonl` files with one document per line, and `.txt` files.

The study names the folder (`folder: my_text`); each machine maps the name to a path (`data_folders:
{my_text: /data/text}`). Each line of a `.jsonl` file is an object with a text and optionally a
domain. A `.txt` file is one document; its domain is the name of its top folder if the study lists
a domain of that name, else the first domain. `.jsonl` files are read line by line and may be larger
than memory. Rows on the hub that `lce fetch datasets:...` has downloaded are such a file. A hash of
a document's name (path, or path and line) decides whether it is held out from training.

Source: own; JSON Lines as written by common data pipelines.
"""

import hashlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar

from lce_core.corpora import Document, Split
from lce_core.corpora._files import ListedDomains, files_below, require_utf8_names
from lce_core.corpora._rows import check_utf8, readable, whole_text
from lce_core.errors import DataError
from lce_core.evidence import calls
from lce_core.hub import is_address, local_folder
from lce_core.registry import Source
from lce_core.store.file_facts import fact_of
from lce_core.store.odd_files import open_file

VERSION = 1
SOURCE = Source(paper="own", place="jsonlines.org, one JSON value a line", reference="own")

_LINES, _TEXT = "sha256 of UTF-8", "sha256 of text"
"""Names of cached facts: the sha256 of a file that is UTF-8, and that of its `whole_text`."""


class JsonlFolder(ListedDomains):
    """Documents of all files with one of `endings` below a folder, in path and line order."""

    domain_field: str = "domain"
    """JSON key of a document's domain; lines without this key belong to the first domain."""
    endings: ClassVar[tuple[str, ...]] = (".jsonl", ".txt")
    """Endings of the files that are read. Each file that is not `.jsonl` is one document."""

    def digest(self, folders: Mapping[str, Path]) -> str:
        """Refuse text that is not UTF-8, so that a study fails before it computes anything."""
        root = self._root(folders)
        digest = hashlib.sha256()
        for name in self._files(root):
            file = root / name
            what, compute = (_LINES, _of_lines) if name.endswith(".jsonl") else (_TEXT, _of_text)
            content = fact_of(what, file, [file], partial(compute, file))
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
            for document in self._documents(root / name, name):
                if self.split(document.name) == split:
                    yield document

    def _documents(self, file: Path, name: str) -> Iterator[Document]:
        if name.endswith(".jsonl"):
            first = self.domain_names[0]
            for number, domain, text in self._read(str(file), self.domain_field, first):
                yield Document(f"{name}:{number}", domain, text)
        else:
            top = name.split("/")[0]
            domain = top if top in self.domain_names else self.domain_names[0]
            yield Document(name, domain, whole_text(file))

    def _root(self, folders: Mapping[str, Path]) -> Path:
        return local_folder(self._location(folders), tuple(f"*{one}" for one in self.endings))

    def _files(self, root: Path) -> list[str]:
        found = [name for name in files_below(root)[0] if name.endswith(self.endings)]
        if not found:
            raise DataError(
                root,
                f"no {' or '.join(self.endings)} file",
                "a folder with text in such files",
                "put such files there, or name another folder",
            )
        require_utf8_names(root, found)
        return found


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


def _of_lines(file: Path) -> str:
    digest = hashlib.sha256()
    with readable(str(file)), open_file(file) as stream:
        for block in check_utf8(file, stream):
            digest.update(block)
    return digest.hexdigest()


def _of_text(file: Path) -> str:
    return hashlib.sha256(whole_text(file).encode()).hexdigest()
