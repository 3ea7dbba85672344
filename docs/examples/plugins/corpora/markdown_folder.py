"""Markdown files of a folder: each file is a document, without its front matter.

All documents belong to the first domain. A hash of a file's path decides whether it is held out.

Source: own; front matter as static site generators write it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from lce_core.corpora import Document, Split
from lce_core.corpora._files import ListedDomains, decoded
from lce_core.errors import DataError
from lce_core.evidence import calls
from lce_core.hub import local_folder
from lce_core.registry import Source
from lce_core.store.file_facts import sha256_of

PATTERN = "*.md"


class MarkdownFolder(ListedDomains):
    """Text of Markdown files."""

    def digest(self, folders: Mapping[str, Path]) -> str:
        """Return the sha256 over paths and contents of all files."""
        total = hashlib.sha256()
        for name, file in self._files(folders):
            total.update(f"{sha256_of(file)} {name}\n".encode())
        return total.hexdigest()

    def documents(self, split: Split, folders: Mapping[str, Path]) -> Iterator[Document]:
        """Yield the documents of a split, sorted by path."""
        for name, file in self._files(folders):
            if self.split(name) == split:
                text = text_of(decoded(file.read_bytes(), file))
                yield Document(name, self.domain_names[0], text)

    def _files(self, folders: Mapping[str, Path]) -> list[tuple[str, Path]]:
        root = local_folder(self._location(folders), (PATTERN,))
        found = sorted((file.relative_to(root).as_posix(), file) for file in root.rglob(PATTERN))
        if not found:
            raise DataError(
                root, f"no {PATTERN}", "a folder with such files", "name another folder"
            )
        return found


def text_of(content: str) -> str:
    """Return the text after the front matter, which is between two lines of three hyphens."""
    return content.split("---\n", 2)[-1] if content.startswith("---\n") else content


CORPUS = MarkdownFolder
SOURCE = Source(
    paper="https://jekyllrb.com/docs/front-matter",
    place="first example",
    reference="own",
)
EVIDENCE = (calls(text_of, "One.\n", "by hand", content="---\ntitle: a\n---\nOne.\n"),)
VERSION = 1
