"""Data sets of benchmarks: published files in a folder on the user's machine.

The user assigns a folder, or rows on the hub that `lce fetch` has downloaded, to a data set's name
in `data_folders`. A cell whose files are missing is unavailable. The sha256 of the files is part of
the id of every cell that reads them.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import pyarrow as pa
import pyarrow.parquet as pq

from lce_core.errors import DataError, UnavailableError
from lce_core.hub import given_names, local_folder, rows_address
from lce_core.store.file_facts import fact_of, sha256_of

T = TypeVar("T")
DataRow = dict[str, Any]
SUBSET = "subset.json"
"""JSON file such as {"qasper.jsonl": 37} (file or split: number of rows), by which a user declares
that the folder has fewer rows than published. Without it, missing rows are an error."""
_FACTS: dict[tuple[object, ...], Any] = {}


class Table(NamedTuple):
    """Rows that a benchmark reads if the user names a data set on the hub instead of a folder."""

    config: str | None = None
    split: str | None = None
    """Like `config`, None if the user's address decides."""


@dataclass(frozen=True)
class DataSet:
    """A published data set; `folders` maps names of data sets to the user's folders."""

    name: str
    patterns: tuple[str, ...]
    """Globs of the data set's files within the folder."""
    origin: str
    """Web address or package with the files, for error messages."""
    tables: tuple[Table, ...] = ()
    """Rows that replace the files if the user gives datasets:OWNER/NAME@COMMIT."""

    def files(self, folders: Mapping[str, Path]) -> list[Path]:
        """Return the paths of all files, sorted, or raise UnavailableError."""
        remedy = f"get it from {self.origin} and give `--data-folder {self.name}=FOLDER`"
        if self.name not in folders:
            raise UnavailableError(
                f"data set {self.name!r}",
                f"no folder of this name{given_names(folders)}",
                "a folder with the files of the data set",
                remedy,
            )
        if address := rows_address(folders[self.name]):
            if not self.tables:
                raise UnavailableError(
                    f"data set {self.name!r}",
                    str(address),
                    "a folder, because this data set is published as files and not as rows",
                    remedy,
                )
            return sorted(address.fetched(*table) for table in self.tables)
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
                f"data set {self.name!r}: {folder}", f"no {wanted}", "the data set's files", remedy
            )
        return found

    def missing(self, what: str) -> UnavailableError:
        return UnavailableError(
            f"data set {self.name!r}",
            f"no {what}",
            "all files of the data set",
            f"get the missing files from {self.origin}",
        )

    def require_rows(
        self, folders: Mapping[str, Path], part: str, got: int, published: int
    ) -> None:
        """Raise DataError unless a file or split has its published or declared rows."""
        expected = self._declared_rows(folders).get(part, published)
        if got != expected:
            raise DataError(
                f"data set {self.name!r}: {part}",
                f"{got:,} rows",
                f"all {expected:,} rows",
                f"get it again from {self.origin}. To evaluate fewer rows, keep the complete file"
                " and lower the number of samples in the study. To use this incomplete data set,"
                f" write {json.dumps({part: got})} into the file {SUBSET} in its folder",
            )

    def is_in(self, folders: Mapping[str, Path]) -> bool:
        try:
            return bool(self.files(folders))
        except UnavailableError:
            return False

    def num_rows(self, folders: Mapping[str, Path], part: str, published: int) -> int:
        """Return the rows of a file or split: `published`, or what the file `SUBSET` declares.

        `part` may be a glob of the file's name.
        """
        try:
            declared = self._declared_rows(folders)
            return next((declared[name] for name in declared if fnmatch(name, part)), published)
        except (KeyError, UnavailableError):  # not on this machine
            return published

    def recorded_name(self, folders: Mapping[str, Path]) -> str:
        return f"{self.name} (subset)" if self._declared_rows(folders) else self.name

    def _declared_rows(self, folders: Mapping[str, Path]) -> dict[str, int]:
        if rows_address(folders[self.name]):
            return {}
        file = local_folder(folders[self.name], self.patterns) / SUBSET
        if not file.is_file():
            return {}
        with contextlib.suppress(ValueError):
            declared = json.loads(read_text(file))
            if isinstance(declared, dict) and all(type(rows) is int for rows in declared.values()):
                return declared
        raise DataError(
            file,
            "content that is not a JSON object of whole numbers",
            '{"FILE OR SPLIT": NUMBER_OF_ROWS, ...}',
            "correct or remove the file",
        )

    def seen(self, folders: Mapping[str, Path]) -> tuple[tuple[Path, int, int], ...]:
        """Return path, size in bytes and modification time in ns of each file: a cache key."""
        files = [(file, file.stat()) for file in self.files(folders)]
        return tuple((file, stat.st_size, stat.st_mtime_ns) for file, stat in files)

    def fact(self, what: str, folders: Mapping[str, Path], compute: Callable[[], T]) -> T:
        """Return `compute()`, a JSON value that the store caches until one of the files changes.

        `what` is name and version of the computation, part of the cache key.
        """
        key = (what, self.seen(folders))
        if key not in _FACTS:
            paths = self.files(folders)
            _FACTS[key] = fact_of(what, paths[0].parent, paths, compute)
        return cast("T", _FACTS[key])

    def digest(self, folders: Mapping[str, Path]) -> str:
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


def spread(num_all: int, num_wanted: int) -> list[int]:
    """Return `num_wanted` evenly spaced indices of 0..num_all - 1, or all if there are fewer."""
    count = min(num_all, num_wanted)
    return [index * num_all // count for index in range(count)]


def read_text(file: Path, encoding: str = "utf-8") -> str:
    """Return a file's text without byte order mark, with newlines as line endings."""
    try:
        return file.read_text(encoding=encoding).removeprefix("\ufeff")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            file, error, f"readable {encoding} text", "correct or remove the file"
        ) from None


def read_rows(file: Path, columns: Sequence[str]) -> Iterator[DataRow]:
    """Read the rows of a .jsonl, .json (one object or a list) or .parquet file, in order.

    Raises DataError if the file has another format, or a row lacks one of `columns`.
    """
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
            place, remedy = f"{file}: row {number}", "use the published files unchanged"
            if not isinstance(row, dict):
                got, expected = type(row).__name__, "an object with a value for each column"
                raise DataError(place, got, expected, remedy)
            if missing := [column for column in columns if column not in row]:
                got = f"no column {missing[0]!r}, only {', '.join(sorted(row)) or 'none'}"
                raise DataError(place, got, f"the columns {', '.join(columns)}", remedy)
            yield row
    except (ValueError, OSError, RecursionError, pa.ArrowException) as error:
        raise DataError(
            file, error, "rows of JSON lines, JSON or parquet", "get the file again"
        ) from None


def _parquet_rows(file: Path) -> Iterator[DataRow]:
    with pq.ParquetFile(file) as table:
        for batch in table.iter_batches(batch_size=256):
            yield from batch.to_pylist()


ESSAYS = DataSet(
    "essays",
    ("*.txt", "*.json"),
    "github.com/gkamradt/LLMTest_NeedleInAHaystack (PaulGrahamEssays/*.txt), or RULER's"
    " PaulGrahamEssays.json",
    (Table(),),
)


def essays(folders: Mapping[str, Path]) -> str:
    """Return all essays as one text, in the order of their file names."""
    texts = []
    for file in ESSAYS.files(folders):
        if file.suffix == ".txt":
            texts.append(read_text(file))
        else:
            texts += [str(row["text"]) for row in read_rows(file, ("text",))]
    return "".join(texts)
