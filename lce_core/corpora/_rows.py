"""Read the rows of one text file: parquet, JSON lines (also `.gz` and `.zst`), or plain text.

Only the fields that the study names are read, and their values keep the types of the file. UTF-8
text may start with a byte order mark, which is removed. Paths are passed to no function that
expands patterns or parses URLs.
"""

import codecs
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lce_core.errors import DataError
from lce_core.hub import http_errors
from lce_core.store.odd_files import open_file

MAX_DOCUMENT_BYTES = 1 << 27
"""Maximum size of a line and of a plain text file. It limits memory when a small packed file
unpacks to one huge line; a tokenizer needs about 30 bytes for each byte of a document."""
BATCH_ROWS = 1024
"""Rows of a parquet file that are in memory at a time."""
ROW_FORMATS = (
    ".parquet",
    ".jsonl",
    ".json",
    *(f"{kind}{packed}" for kind in (".jsonl", ".json") for packed in (".gz", ".zst")),
)
"""Endings of the files that `rows` reads."""
_HUB = "hf://"


class Absent(NamedTuple):
    """Value of a field that a row does not have."""

    keys: tuple[str, ...]
    """Keys that the row has."""


Row = tuple[int, list[Any]]
"""Number of the line, or of the row of a parquet file, from 1, and the value of each field. The
value is `Absent` if the row does not have the field."""


def rows(file: str, fields: Sequence[str], skipped: int = 0) -> Iterator[Row]:
    """Yield the rows of a file that ends in one of `ROW_FORMATS`; blank lines are not rows.

    `file` is a path or an hf:// URL; a field "a.b" is the field b of a, unless there is a column
    "a.b"; `skipped` rows are left out at the start. Raises ConnectionError if the connection to the
    hub broke.
    """
    with readable(file), _opened(file) as stream:
        if file.endswith(".parquet"):
            yield from _parquet_rows(stream, file, fields, skipped)
        else:
            yield from _json_rows(_unpacked(stream, file), file, fields, skipped)


def whole_text(file: Path) -> str:
    r"""Return the text of a file of at most `MAX_DOCUMENT_BYTES`, `\r\n` converted to `\n`."""
    with readable(str(file)), open_file(file) as stream:
        data = stream.read(MAX_DOCUMENT_BYTES + 1)
    if len(data) > MAX_DOCUMENT_BYTES:
        raise _too_long(file, "a document")
    return decoded(data, file).removeprefix("\ufeff").replace("\r\n", "\n")


def check_utf8(file: Path, stream: BinaryIO) -> Iterator[bytes]:
    """Yield the blocks of a file; raise DataError at the first byte that is not UTF-8."""
    decoder, read = codecs.getincrementaldecoder("utf-8")(), 0
    while True:
        block = stream.read(1 << 20)
        pending = len(decoder.getstate()[0])
        try:
            decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            raise _not_utf8(file, read - pending + error.start) from error
        if not block:
            return
        yield block
        read += len(block)


def decoded(data: bytes, file: str | Path, offset: int = 0) -> str:
    """Decode UTF-8 bytes that start at byte `offset` of a file."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf8(file, offset + error.start) from error


def is_utf8(text: str) -> bool:
    """Return False if the text contains half a surrogate pair, as JSON escapes and names can."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def unreadable(file: str | Path, reason: object) -> DataError:
    return DataError(
        file,
        f"a file that cannot be read ({reason})",
        "a regular file that is readable and complete",
        "check its permissions, get it again, or exclude it",
    )


def _opened(file: str) -> BinaryIO:
    if not file.startswith(_HUB):
        return open_file(Path(file))
    from huggingface_hub import HfFileSystem

    return cast("BinaryIO", HfFileSystem().open(file))


def _unpacked(stream: BinaryIO, file: str) -> BinaryIO:
    kind = {".gz": "gzip", ".zst": "zstd"}.get(Path(file).suffix)
    # Arrow reads all frames of a file and refuses a truncated one. Python has no zstd before 3.14.
    raw: Any = pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), kind) if kind else stream
    # A hub file has no `readline` with a limit of its own, and neither have Arrow's streams.
    return raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw, 1 << 20)


def _json_rows(stream: BinaryIO, file: str, fields: Sequence[str], skipped: int) -> Iterator[Row]:
    offset, number = 0, 0
    while line := stream.readline(MAX_DOCUMENT_BYTES + 1):
        number += 1
        where = f"{file}:{number}"
        if len(line) > MAX_DOCUMENT_BYTES:
            raise _too_long(where, "a line")
        start, offset = offset, offset + len(line)
        if number == 1 and line.startswith(codecs.BOM_UTF8):
            line, start = line[len(codecs.BOM_UTF8) :], len(codecs.BOM_UTF8)
        if not line.strip():
            continue
        if skipped:
            skipped -= 1
            continue
        entry = _json_object(decoded(line, file, start), where)
        yield number, [_field(entry, name) for name in fields]


def _json_object(line: str, where: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(
            where,
            f"a line that is not JSON ({error})",
            "one JSON object a line",
            "correct or remove the line",
        ) from error
    if not isinstance(entry, dict):
        raise DataError(
            where,
            f"a JSON value of type {type(entry).__name__}",
            "one JSON object a line",
            "write each document as an object on a line of its own",
        )
    return entry


def _field(entry: dict[str, Any], name: str) -> Any:
    if name in entry:
        return entry[name]
    found: Any = entry
    for part in name.split("."):
        if not isinstance(found, dict) or part not in found:
            return Absent(tuple(entry))
        found = found[part]
    return found


def _parquet_rows(
    stream: BinaryIO, file: str, fields: Sequence[str], skipped: int
) -> Iterator[Row]:
    with pq.ParquetFile(stream) as table:
        parts = [_column_parts(table.schema_arrow, name, file) for name in fields]
        number = 0
        for batch in table.iter_batches(BATCH_ROWS, columns=list(fields)):
            left_out = min(skipped, batch.num_rows)
            skipped, number = skipped - left_out, number + left_out
            batch = batch.slice(left_out)
            columns = [_column(batch, names) for names in parts]
            for values in zip(*columns, strict=True):
                number += 1
                yield number, list(values)


def _column_parts(schema: pa.Schema, field: str, file: str) -> list[str]:
    """Return the names that lead to a field: one of a column, several of a nested column."""
    if field in schema.names:
        return [field]
    parts = field.split(".")
    found: Any = pa.struct(list(schema))
    for depth, name in enumerate(parts):
        names = [child.name for child in found] if pa.types.is_struct(found) else []
        if name not in names:
            held = f"the columns {', '.join(schema.names)}"
            if depth:
                held = f"{'.'.join(parts[:depth])!r} of type {found}"
            raise DataError(
                file,
                held,
                f"a column {field!r}",
                "set text_field or domain_field to an existing column, or exclude the file",
            )
        found = found.field(name).type
    return parts


def _column(batch: pa.RecordBatch, names: Sequence[str]) -> list[Any]:
    column = batch.column(names[0])
    return list((pc.struct_field(column, names[1:]) if names[1:] else column).to_pylist())


@contextmanager
def readable(file: str) -> Iterator[None]:
    """Convert errors of the reading libraries to DataError, or ConnectionError for a lost hub."""
    try:
        yield
    except (ValueError, pa.ArrowException, *http_errors()) as error:
        if file.startswith(_HUB) and isinstance(error, http_errors()):
            raise ConnectionError(f"{file}: {type(error).__name__}: {error}") from error
        reason = str(error).splitlines()[0] if str(error) else ""
        if isinstance(error, OSError) and error.strerror:
            raise unreadable(file, error.strerror) from error
        raise unreadable(file, f"{type(error).__name__}: {reason}".rstrip(": ")) from error


def _too_long(where: str | Path, what: str) -> DataError:
    return DataError(
        where,
        f"{what} of more than {MAX_DOCUMENT_BYTES:,} bytes",
        "shorter documents, because each is held in memory",
        "split the document into several, or exclude the file",
    )


def _not_utf8(file: str | Path, byte: int) -> DataError:
    return DataError(
        file, f"byte {byte}, which is not UTF-8", "UTF-8 text", "convert the file to UTF-8"
    )
