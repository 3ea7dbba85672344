"""Data sets of benchmarks: published files in a folder on the user's machine.

The user maps a data set's name ("squad") to a folder with `--data-folder` or `data_folders`. Cells
whose files are missing are unavailable. The sha256 of the files is part of the id of every cell
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
"""JSON file {file or split: number of rows} with which a user declares that a data folder has fewer
rows than the published data set. Without it, missing rows are an error."""
Seen = tuple[tuple[str, int, int], ...]
"""(path, size in bytes, modification time in ns) of each file of a data set, as a cache key."""


@dataclass(frozen=True)
class DataSet:
    """A published data set. The argument `folders` maps data set names to the user's folders."""

    name: str
    """Name of the data set, a key of `data_folders`."""
    patterns: tuple[str, ...]
    """Globs of the files within the folder; a file matched by several patterns counts once."""
    origin: str
    """Where to get the files, for error messages."""

    def files(self, folders: Mapping[str, Path]) -> list[Path]:
        """List all files, sorted by name.

        Raises:
          UnavailableError: if `folders` lacks the data set, or its folder has none of the files.
        """
        remedy = f"get it from {self.origin} and give `--data-folder {self.name}=FOLDER`"
        if self.name not in folders:
            raise UnavailableError(
                f"data set {self.name!r}",
                "no folder of this name in `data_folders`",
                "a folder with the files of the data set",
                remedy,
            )
        try:
            folder = local_folder(folders[self.name], self.patterns)
        except UnavailableError as error:
            raise UnavailableError(
                f"data set {self.name!r}: {error.where}",
                error.got,
                "the data set on this machine or on the Hugging Face hub",
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
        """Check the number of rows of a file or split.

        Args:
          part: name of the file, or of a split that may span several files.
          got: number of rows found.
          published: number of rows of the published data.

        Raises:
          DataError: if `got` differs from `published`, or from the number that the file `SUBSET`
            declares for `part`.
        """
        expected = self._declared_rows(folders).get(part, published)
        if got != expected:
            raise DataError(
                f"data set {self.name!r}: {part}",
                f"{got:,} rows",
                f"all {expected:,} rows",
                f"get it again from {self.origin}. To use fewer rows, set num_samples. To declare"
                f" an incomplete data set, write {json.dumps({part: got})} into its {SUBSET}",
            )

    def recorded_name(self, folders: Mapping[str, Path]) -> str:
        """Return the name, with " (subset)" if the file `SUBSET` declares missing rows."""
        return f"{self.name} (subset)" if self._declared_rows(folders) else self.name

    def _declared_rows(self, folders: Mapping[str, Path]) -> dict[str, int]:
        file = local_folder(folders[self.name], self.patterns) / SUBSET
        if not file.is_file():
            return {}
        with contextlib.suppress(ValueError):
            declared = json.loads(read_text(file))
            if isinstance(declared, dict) and all(type(rows) is int for rows in declared.values()):
                return declared
        raise DataError(
            file,
            "no numbers of rows",
            'a JSON object {"FILE OR SPLIT": NUMBER_OF_ROWS, ...}',
            "correct or remove the file",
        )

    def seen(self, folders: Mapping[str, Path]) -> Seen:
        """Return path, size and modification time of every file, as a cache key.

        Raises:
          UnavailableError: if the data set is not on this machine.
        """
        files = [(file, file.stat()) for file in self.files(folders)]
        return tuple((str(file), stat.st_size, stat.st_mtime_ns) for file, stat in files)

    def digest(self, folders: Mapping[str, Path]) -> str:
        """Return the sha256 over names and contents of all files; unchanged files are not read.

        Raises:
          UnavailableError: if the data set is not on this machine.
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
    """Return `compute()`, cached in the store until one of the files changes.

    Args:
      what: name and version of the computation, part of the cache key.
      files: all files that the result depends on.
      compute: returns a JSON value.
    """
    paths = [Path(path) for path, *_ in files]
    return fact_of(what, paths[0].parent, paths, compute)


def spread(num_all: int, num_wanted: int) -> list[int]:
    """Return `num_wanted` evenly spaced indices below `num_all`; all if `num_all` is smaller."""
    count = min(num_all, num_wanted)
    return [index * num_all // count for index in range(count)]


def read_text(file: Path, encoding: str = "utf-8") -> str:
    """Read a whole text file; every line ending becomes a newline.

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
                # splitlines() would also split at U+2028, which JSON strings may contain.
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
