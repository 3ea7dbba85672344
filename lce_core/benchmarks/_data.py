"""Data sets of benchmarks: files in folders that the user names, with checks while reading.

A data set is a name ("squad") for which `data_folders` provides a folder. Its files keep their
published names and formats. Missing files make cells unavailable. Files that cannot be read raise
an error with file, line and column. The digest of the files is part of the identity of every cell
that reads them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from lce_core.errors import DataError, UnavailableError
from lce_core.hub import local_folder
from lce_core.store.file_facts import fact_of, sha256_of

T = TypeVar("T")
DataRow = dict[str, Any]
SUBSET = "subset.json"
"""File that a user adds to a data folder with fewer rows than published: number of rows by file
or split, as JSON. Without it an incomplete folder is an error."""
Seen = tuple[tuple[str, int, int], ...]
"""(Path, size in bytes, modification time in ns) of each file; a cache key."""


@dataclass(frozen=True)
class DataSet:
    """Files that a benchmark reads from a folder that the user names."""

    name: str
    """Key of `data_folders`."""
    patterns: tuple[str, ...]
    """Globs of the files within the folder; a file matched by several patterns counts once."""
    origin: str
    """Where to get the files, for error messages."""

    def files(self, folders: Mapping[str, Path]) -> list[Path]:
        """List all files, sorted by name.

        Raises:
          UnavailableError: if there is no folder of that name, or none of the files in it.
        """
        remedy = f"get it from {self.origin} and give `--data-folder {self.name}=FOLDER`"
        if self.name not in folders:
            raise UnavailableError(
                f"data set {self.name!r}",
                "no folder of this name",
                "the data set on this machine",
                remedy,
            )
        try:
            folder = local_folder(folders[self.name], self.patterns)
        except UnavailableError as error:
            raise UnavailableError(
                f"data set {self.name!r}: {error.where}",
                error.got,
                "the data set on this machine or on the hub",
                remedy,
            ) from error
        found = sorted({file for pattern in self.patterns for file in folder.glob(pattern)})
        if not found:
            wanted = " or ".join(self.patterns)
            raise UnavailableError(
                f"data set {self.name!r}: {folder}",
                f"no {wanted}",
                "the files of the data set",
                remedy,
            )
        return found

    def require_rows(
        self, folders: Mapping[str, Path], part: str, got: int, published: int
    ) -> None:
        """Raise an error if files are incomplete, unless the folder declares this in `SUBSET`.

        Args:
          folders: folders of data sets by name.
          part: what was counted: a file, or a split that may span several files.
          got: number of rows found.
          published: number of rows of the published data.

        Raises:
          DataError: if the number differs from the published one, or from the one in `SUBSET`.
        """
        expected = self._stated(folders).get(part, published)
        if got != expected:
            raise DataError(
                f"data set {self.name!r}: {part}",
                f"{got:,} rows",
                f"all {expected:,} rows",
                f"get it again from {self.origin}, or set num_samples to use fewer; if the"
                f" folder is to hold a part, write {json.dumps({part: got})} into its {SUBSET}",
            )

    def recorded_name(self, folders: Mapping[str, Path]) -> str:
        """Return the name, with " (subset)" if the folder holds a file `SUBSET`."""
        return f"{self.name} (subset)" if self._stated(folders) else self.name

    def _stated(self, folders: Mapping[str, Path]) -> dict[str, int]:
        file = local_folder(folders[self.name], self.patterns) / SUBSET
        if not file.is_file():
            return {}
        with contextlib.suppress(ValueError):
            stated = json.loads(read_text(file))
            if isinstance(stated, dict) and all(type(rows) is int for rows in stated.values()):
                return stated
        raise DataError(
            file, "no numbers of rows", '{"FILE": ROWS, ...}', "correct or remove the file"
        )

    def seen(self, folders: Mapping[str, Path]) -> Seen:
        """Identify the present files by path, size and time, for cache keys.

        Raises:
          UnavailableError: as in `files`.
        """
        files = [(file, file.stat()) for file in self.files(folders)]
        return tuple((str(file), stat.st_size, stat.st_mtime_ns) for file, stat in files)

    def digest(self, folders: Mapping[str, Path]) -> str:
        """Return the sha256 over names and contents of all files.

        The digest of an unchanged file is cached.

        Raises:
          UnavailableError: as in `files`.
          DataError: if a file cannot be read.
        """
        total = hashlib.sha256()
        for file in self.files(folders):
            try:
                content = sha256_of(file)
            except OSError as error:
                raise DataError(
                    file,
                    f"a file that cannot be read ({error.strerror})",
                    "a readable file",
                    "check its permissions",
                ) from None
            total.update(f"{content} {file.name}\n".encode())
        return total.hexdigest()


def fact_of_files(what: str, files: Seen, compute: Callable[[], T]) -> T:
    """Return `compute()`; the store, if one is in use, caches it while the files are unchanged.

    Args:
      what: name of the result, part of the cache key; it includes a version of `compute`.
      files: all files that the result depends on.
      compute: returns a JSON value, as in `lce_core.store.file_facts`.
    """
    paths = [Path(path) for path, *_ in files]
    return fact_of(what, paths[0].parent, paths, compute)


def spread(num_all: int, num_wanted: int) -> list[int]:
    """Return `num_wanted` evenly spaced indices out of `num_all`, or all if there are fewer."""
    count = min(num_all, num_wanted)
    return [index * num_all // count for index in range(count)]


def read_text(file: Path, encoding: str = "utf-8") -> str:
    """Read a whole text file and convert every kind of line ending to a newline.

    Raises:
      DataError: if the file is not readable text of that encoding.
    """
    try:
        return file.read_text(encoding=encoding)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            file, error, f"readable {encoding} text", "correct or remove the file"
        ) from None


def read_rows(file: Path, columns: Sequence[str]) -> Iterator[DataRow]:
    """Read the rows of a .jsonl, .json (one object or a list) or .parquet file, in order.

    Raises:
      DataError: if the file has another format, or a row lacks one of `columns`.
    """
    for place, row in _entries(file):
        missing = [column for column in columns if column not in row]
        if missing:
            raise DataError(
                place,
                f"no column {missing[0]!r}, only {', '.join(sorted(row)) or 'none'}",
                f"the columns {', '.join(columns)}",
                "use the data set in its published form",
            )
        yield row


def _entries(file: Path) -> Iterator[tuple[str, DataRow]]:
    try:
        match file.suffix:
            case ".parquet":
                found: Iterable[Any] = _parquet_rows(file)
            case ".jsonl":
                # Not splitlines(): a line may contain U+2028.
                lines = read_text(file).split("\n")
                found = (json.loads(line) for line in lines if line.strip())
            case _:
                content = json.loads(read_text(file))
                found = content if isinstance(content, list) else [content]
        for number, row in enumerate(found, start=1):
            if not isinstance(row, dict):
                raise DataError(
                    f"{file}: row {number}",
                    type(row).__name__,
                    "an object",
                    "use the data set in its published form",
                )
            yield f"{file}: row {number}", row
    except (ValueError, OSError, pa.ArrowException) as error:
        raise DataError(
            file, error, "rows of JSON lines, JSON or parquet", "get the file again"
        ) from None


def _parquet_rows(file: Path) -> Iterator[DataRow]:
    with pq.ParquetFile(file) as table:
        for batch in table.iter_batches(batch_size=256):
            yield from batch.to_pylist()
