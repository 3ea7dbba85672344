"""Download rows of a hub data set with `datasets`, by name, configuration, split and commit.

Equal rows become equal bytes, so the sha256 of the file identifies the rows. Data sets with a
loading script are not readable by `datasets`; the commits of the hub's branch refs/convert/parquet,
whose files are CONFIG/SPLIT/NUMBER.parquet, are.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lce_core.errors import DataError, SpecError, UnavailableError
from lce_core.hub import RowsAddress, http_errors, listed_files, prefix

if TYPE_CHECKING:
    from datasets import DatasetBuilder

_CONVERTED = re.compile(r"(?P<config>[^/]+)/(?P<split>[^/]+)/\d{4}\.parquet")


def fetch_rows(address: RowsAddress) -> Iterator[Path]:
    """Download the rows of every split that an address covers, if missing; yield each file."""
    if address.config and address.split:
        file = address.file(address.config, address.split)
        if file.is_file():
            yield file
            return
    with tempfile.TemporaryDirectory() as scratch:
        for config, builder in _builders(address, scratch):
            names = sorted(map(str, builder.config.data_files or {}))
            for split in _chosen(address, "split", address.split, names):
                file = address.file(config, split)
                if not file.is_file():
                    _write(address, builder, split, file)
                yield file


def split_files(address: RowsAddress) -> tuple[str, list[str]]:
    """Return URL prefix and paths of the files of an address's split, without downloading them."""
    with tempfile.TemporaryDirectory() as scratch:
        found = {
            config: builder.config.data_files for config, builder in _builders(address, scratch)
        }
    if len(found) > 1:
        raise _unknown(address, "configuration", None, sorted(found))
    (files,) = found.values()
    by_name = {str(split): list(map(str, paths)) for split, paths in (files or {}).items()}
    if address.split not in by_name:
        raise _unknown(address, "split", address.split, sorted(by_name))
    start = prefix(address.repo, address.revision)
    return start, [path.removeprefix(start) for path in by_name[address.split]]


def _builders(address: RowsAddress, scratch: str) -> Iterator[tuple[str, DatasetBuilder]]:
    """Yield name and builder of the address's configuration, or of all configurations.

    `scratch`, the cache of `datasets`, must be empty: with a filled one, `datasets` would use any
    cached revision if the hub does not answer.
    """
    from datasets import get_dataset_config_names, load_dataset_builder

    pinned = {"revision": address.revision, "cache_dir": scratch}
    # This request has a timeout of seconds; `datasets` tries for minutes to reach a hub.
    if converted := _converted(address):
        names = sorted(converted)
    else:
        with _reading(address):
            names = get_dataset_config_names(address.repo, **pinned)
    for name in _chosen(address, "configuration", address.config, names):
        with _reading(address):
            if converted:
                found = load_dataset_builder(
                    "parquet", data_files=converted[name], cache_dir=scratch
                )
            else:
                found = load_dataset_builder(address.repo, name, **pinned)
        yield name, found


def _converted(address: RowsAddress) -> dict[str, dict[str, list[str]]]:
    """Return the URLs by configuration and split as in refs/convert/parquet; {} in other forms."""
    found: dict[str, dict[str, list[str]]] = {}
    start = prefix(address.repo, address.revision)
    for name in sorted(listed_files(address.repo, address.revision, str(address))):
        form = _CONVERTED.fullmatch(name)
        if form is None and name != ".gitattributes":
            return {}
        if form is not None:
            found.setdefault(form["config"], {}).setdefault(form["split"], []).append(start + name)
    return found


def _write(address: RowsAddress, builder: DatasetBuilder, split: str, file: Path) -> None:
    where = f"{address}, split {split!r} of {builder.config.name!r}"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = 0
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        written = Path(folder) / file.name
        with _reading(address), written.open("w", encoding="utf-8") as stream:
            for row in builder.as_streaming_dataset(split=split):
                rows += 1
                try:
                    stream.write(json.dumps(row, ensure_ascii=False) + "\n")
                except TypeError as error:
                    raise DataError(
                        f"{where}: row {rows}",
                        f"a value that JSON cannot hold ({error})",
                        "text, numbers, lists and mappings",
                        "choose a configuration without images, sounds and dates, or convert the"
                        " data set to JSON lines and give its folder",
                    ) from error
        declared = (builder.info.splits or {}).get(split)
        if declared is not None and declared.num_examples not in (0, None, rows):
            raise DataError(
                where,
                f"{rows:,} rows",
                f"{declared.num_examples:,} rows, as the data set declares",
                "run `lce fetch` again",
            )
        written.replace(file)


def _chosen(address: RowsAddress, what: str, named: str | None, names: list[str]) -> list[str]:
    if named is None:
        return names
    if named not in names:
        raise _unknown(address, what, named, names)
    return [named]


def _unknown(address: RowsAddress, what: str, named: str | None, names: list[str]) -> SpecError:
    return SpecError(
        str(address),
        f"no {what}" if named is None else f"{what} {named!r}",
        f"one of {', '.join(names)}",
        f"write one of these as the {what} in the address",
    )


@contextmanager
def _reading(address: RowsAddress) -> Iterator[None]:
    """Convert errors of `datasets`: a lost hub, a loading script, rows of a wrong form."""
    try:
        yield
    except RuntimeError as error:
        raise SpecError(
            str(address),
            f"a data set that `datasets` cannot read ({error})",
            "a data set of files, without a loading script",
            "take a commit of its branch refs/convert/parquet, or give a folder with its files",
        ) from error
    except http_errors() as error:
        reason = str(error).splitlines()[0] if str(error) else ""
        raise UnavailableError(
            str(address),
            f"a download that failed ({type(error).__name__}: {reason})",
            "a connection to the hub, and this data set on it",
            f"check the connection and the address, then run `lce fetch {address}` again",
        ) from error
    except ValueError as error:
        raise DataError(
            str(address),
            f"rows that cannot be read ({str(error).splitlines()[0]})",
            "files of the format that their names state",
            "take another commit, or give a folder with the data set's files",
        ) from error
