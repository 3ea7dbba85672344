"""Shared code of the text sources: files of a folder, and domains and splits of documents."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from lce_core.corpora import Corpus, Split
from lce_core.corpora._rows import Absent, decoded, is_utf8, readable, rows, unreadable
from lce_core.errors import DataError, SpecError, UnavailableError
from lce_core.hub import given_names, is_address

# Users' text sources import `decoded` and `unreadable` from here, as the template does.
__all__ = ["ListedDomains", "decoded", "files_below", "split_of", "unreadable"]


class ListedDomains(Corpus):
    """A text source in a data folder or on the hub.

    The study lists the domains of the text, so that planning need not read the text.
    """

    folder: str = "text"
    """Name of the data set. `data_folders` gives its path or hub address under this name."""
    text_field: str = "text"
    """JSON key or column that contains a document's text; "a.b" is the field b of the column a."""
    domain_names: tuple[str, ...] = Field(default=("text",), min_length=1)
    """All domains of the documents. A document of another domain raises an error."""
    held_out_percent: float = Field(default=5.0, gt=0, lt=100)
    """Percentage of documents (by a hash of their names) held out for evaluation."""

    @field_validator("domain_names")
    @classmethod
    def _distinct(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(names)) != len(names) or not all(names):
            raise SpecError(
                "domain_names",
                list(names),
                "distinct names that are not empty",
                "remove the repeated and empty ones",
            )
        return names

    def domains(self) -> tuple[str, ...]:
        return self.domain_names

    def split(self, name: str) -> Split:
        return split_of(name, self.held_out_percent)

    def notes(self, folders: Mapping[str, Path]) -> list[str]:
        """Return a sentence about the links of the folder that are not followed, if any."""
        place = folders.get(self.folder)
        if place is None or is_address(place) or not place.is_dir():
            return []
        links = files_below(place)[1]
        shown = ", ".join(links[:3]) + (", ..." if len(links) > 3 else "")
        return [
            f"{len(links)} links in {place} lead to folders that are read already, and are left"
            f" out: {shown}"
        ] * bool(links)

    def _location(self, folders: Mapping[str, Path]) -> Path:
        """Return what `data_folders` gives for this folder: a path, or a hub data set's address."""
        place = folders.get(self.folder)
        if place is None or not (is_address(place) or place.is_dir()):
            raise UnavailableError(
                f"{self.plugin_name}: folder {self.folder!r}",
                f"no folder of this name{given_names(folders)}"
                if place is None
                else f"no folder at {place}",
                "a data folder on this machine or a data set on the hub",
                f"give `--data-folder {self.folder}=FOLDER`, `--data-folder"
                f" {self.folder}=hub:OWNER/NAME@COMMIT` or `--data-folder"
                f" {self.folder}=datasets:OWNER/NAME@COMMIT:CONFIG:SPLIT`, or set `data_folders` in"
                " an execution file",
            )
        return place

    def _read(
        self, file: str, domain_field: str | None, default: str | None, skipped: int = 0
    ) -> Iterator[tuple[int, str, str]]:
        """Yield number, domain and text of each row of a file, without the first `skipped` rows.

        If `domain_field` is None, all documents belong to the first domain. `default` is the domain
        of rows without that column; if it is None, such a row is an error.
        """
        fields = [self.text_field, *([] if domain_field is None else [domain_field])]
        for number, values in rows(file, fields, skipped):
            text, domain = values[0], values[-1] if len(values) > 1 else self.domain_names[0]
            if isinstance(domain, Absent) and default is not None:
                domain = default
            self._check(f"{file}:{number}", text, domain, domain_field)
            yield number, domain, text

    def _check(self, where: str, text: Any, domain: Any, domain_field: str | None) -> None:
        if not isinstance(text, str):
            raise DataError(
                where,
                _nothing("text", self.text_field, text)
                if isinstance(text, Absent)
                else f"the text {text!r:.80} under {self.text_field!r}",
                "a string under this key",
                "correct the row, or set text_field",
            )
        if not is_utf8(text):
            raise DataError(
                where,
                "half a surrogate pair, which is not UTF-8",
                "UTF-8 text",
                "correct or remove the row",
            )
        if domain not in self.domain_names:
            raise DataError(
                where,
                _nothing("domain", domain_field, domain)
                if isinstance(domain, Absent)
                else f"domain {domain!r:.80}",
                f"one of {', '.join(self.domain_names)}",
                "add it to domain_names, or set domain_field",
            )


def _nothing(what: str, field: str | None, absent: Absent) -> str:
    return f"no {what} under {field!r}, only the keys {', '.join(absent.keys) or '(none)'}"


def split_of(name: str, held_out_percent: float) -> Split:
    """Return the split of the document or file with this name.

    The first 8 bytes of sha256(name), as a big-endian integer divided by 2^64, are a number from 0
    to 1. A document is held out if this number is below held_out_percent / 100. The split of a
    document therefore does not depend on other documents.
    """
    head = hashlib.sha256(name.encode("utf-8")).digest()[:8]
    return "held_out" if int.from_bytes(head, "big") * 100 < held_out_percent * 2**64 else "train"


def files_below(root: Path) -> tuple[list[str], list[str]]:
    """Return the files below a folder and the links that are not followed, both sorted.

    Paths are relative to `root`, with slashes. A link to a folder is followed unless this folder is
    read under another path. Links are followed after all other folders, so that a link changes no
    name of a file outside of it. A link to a folder that contains it is an error.
    """
    files: list[str] = []
    links: list[str] = []
    left_out: list[str] = []
    waiting, seen = [""], set()
    while waiting:
        below = waiting.pop()
        folder = root / below
        with readable(str(folder)):
            state = folder.stat()
            if (state.st_dev, state.st_ino) in seen:
                left_out.append(below)
            else:
                seen.add((state.st_dev, state.st_ino))
                for entry in os.scandir(folder):
                    path = f"{below}/{entry.name}" if below else entry.name
                    if not Path(folder, entry.name).is_dir():
                        files.append(path)
                    elif entry.is_symlink():
                        links.append(path)
                    else:
                        waiting.append(path)
        if not waiting and links:
            links.sort(reverse=True)
            waiting.append(links.pop())
            place = root / waiting[0]
            if place.parent.resolve().is_relative_to(place.resolve()):
                raise DataError(
                    place,
                    "a link to a folder that contains the link",
                    "links to other folders",
                    "remove the link",
                )
    return sorted(files), sorted(left_out)


def require_utf8_names(root: Path, names: list[str]) -> None:
    # Names of documents are stored as UTF-8.
    for name in names:
        if not is_utf8(name):
            raise DataError(
                root,
                f"the file name {name!r}, which is not UTF-8",
                "file names in UTF-8",
                "rename the file",
            )
