"""Fetch one pinned revision of a hub repository as a local folder, or fail quickly with a reason.

A data set has two forms of address: `hub:OWNER/NAME@COMMIT` names the repository's files, and
`datasets:OWNER/NAME@COMMIT:CONFIG:SPLIT` the rows that `datasets.load_dataset` returns. Equal rows
become equal bytes, so the sha256 of the file identifies the rows. `datasets` cannot read data sets
with a loading script; it can read the commits of the hub's branch refs/convert/parquet, whose files
are CONFIG/SPLIT/NUMBER.parquet.

A complete copy in the local hub cache is used without network access. Otherwise one request with a
short timeout decides whether the hub answers, because the client retries for half a minute. Pickled
weights and code are never fetched.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from lce_core.errors import DataError, SpecError, UnavailableError, first_line

if TYPE_CHECKING:
    from datasets import DatasetBuilder

TIMEOUT_SECONDS = 5.0
_SHARD = re.compile(r"(?P<name>.+)-\d{5}-of-(?P<number>\d{5})\.safetensors")
_PINNED = r"(?P<repo>[\w.-]+/[\w.-]+)@(?P<revision>[0-9a-f]{40})"
_ADDRESS = re.compile(f"hub:{_PINNED}")
_ROWS = re.compile(f"datasets:{_PINNED}" + r"(:(?P<config>[^:/\s]+)(:(?P<split>[\w.]+))?)?")
_CONVERTED = re.compile(r"(?P<config>[^/]+)/(?P<split>[^/]+)/\d{4}\.parquet")
_FIND_COMMIT = (
    "copy the commit from huggingface.co/datasets/OWNER/NAME/commits/main, or print it with"
    " `git ls-remote https://huggingface.co/datasets/OWNER/NAME main`"
)
DEFAULT_CONFIG = "default"


def fetch(
    repo: str,
    revision: str,
    patterns: Sequence[str],
    required: Sequence[str],
    kind: Literal["model", "dataset"],
) -> Path:
    """Return a folder with the files of `repo` at `revision` that match `patterns`.

    `revision` is a full commit, because a branch could change during a study. A cached copy counts
    as complete if a file matches any of `required` and no shard of split weights is missing.
    """
    from huggingface_hub import HfApi, snapshot_download

    if (folder := cached(repo, revision, patterns, required, kind)) is not None:
        return folder
    wanted = list(patterns)
    try:
        HfApi().repo_info(repo, repo_type=kind, revision=revision, timeout=TIMEOUT_SECONDS)
        found = snapshot_download(repo, repo_type=kind, revision=revision, allow_patterns=wanted)
    except http_errors() as error:
        raise UnavailableError(
            f"{repo}@{revision}",
            f"files that are neither in the hub cache nor reachable ({first_line(error)})",
            "files in the cache, or a connection to the hub",
            "connect to the hub and try again (`lce run` with --retry-failed), or give a local"
            f" folder with --{kind.removesuffix('set')}-folder",
        ) from error
    return Path(found)


def cached(
    repo: str,
    revision: str,
    patterns: Sequence[str],
    required: Sequence[str],
    kind: Literal["model", "dataset"],
) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        found = Path(
            snapshot_download(
                repo,
                repo_type=kind,
                revision=revision,
                allow_patterns=list(patterns),
                local_files_only=True,
            )
        )
    except LocalEntryNotFoundError:
        return None
    has_required = not required or any(any(found.rglob(pattern)) for pattern in required)
    return found if has_required and _has_all_shards(found) else None


def _has_all_shards(folder: Path) -> bool:
    # If no file listing is cached, the hub client takes an interrupted download for complete.
    for file in folder.rglob("*.safetensors"):
        if found := _SHARD.fullmatch(file.name):
            name, number = found["name"], int(found["number"])
            others = (f"{name}-{i:05}-of-{number:05}.safetensors" for i in range(1, number + 1))
            if not all((file.parent / other).exists() for other in others):
                return False
    return True


def http_errors() -> tuple[type[Exception], ...]:
    from huggingface_hub.errors import HfHubHTTPError

    # The HTTP library changes between hub versions; its error is a base of the hub's own error.
    return cast("tuple[type[Exception], ...]", (OSError, *HfHubHTTPError.__bases__))


def remote_files(place: Path) -> tuple[str, list[str]]:
    """List the files of a data set's address without downloading them.

    Returns the prefix "hf://datasets/OWNER/NAME@COMMIT/" of the files' URLs, and their paths.
    """
    if address := rows_address(place):
        return _prefix(address.repo, address.revision), _split_files(address)
    repo, revision = _address(place) or ("", "")
    return _prefix(repo, revision), _listed_files(repo, revision, str(place))


def _prefix(repo: str, revision: str) -> str:
    return f"hf://datasets/{repo}@{revision}/"


def _listed_files(repo: str, revision: str, where: str) -> list[str]:
    from huggingface_hub import HfApi

    try:
        info = HfApi().dataset_info(repo, revision=revision, timeout=TIMEOUT_SECONDS)
    except http_errors() as error:
        raise UnavailableError(
            where,
            f"a hub that does not list its files ({first_line(error)})",
            "a connection to the hub, and this data set on it",
            "check the connection and the address, then run again with --retry-failed, or give a"
            " local folder with --data-folder",
        ) from error
    return [file.rfilename for file in info.siblings or ()]


@dataclass(frozen=True)
class RowsAddress:
    """A data set of the hub at a commit, or one configuration or split of it."""

    repo: str
    revision: str
    """Full commit, 40 digits; a branch could change during a study."""
    config: str | None = None
    split: str | None = None

    def __str__(self) -> str:
        parts = [f"datasets:{self.repo}@{self.revision}", self.config, self.split]
        return ":".join(part for part in parts if part is not None)

    def file(self, config: str, split: str) -> Path:
        """Return the path at which `lce fetch` stores the rows of a split."""
        from huggingface_hub import constants

        folder = Path(constants.HF_HOME) / "lce" / self.repo / self.revision / config / split
        return folder / f"{config}.jsonl"

    def fetched(self, config: str | None = None, split: str | None = None) -> Path:
        """Return the JSON lines file with the rows of one split, in a folder of its own.

        None reads the address's configuration (or "default") and split.
        """
        needs = (("configuration", config, self.config), ("split", split, self.split))
        for what, needed, named in needs:
            if needed is not None and named not in (None, needed):
                raise UnavailableError(
                    str(self),
                    f"{what} {named!r}",
                    f"{what} {needed!r}",
                    f"leave both out of the address, so that every task reads its own {what}",
                )
        config, split = config or self.config or DEFAULT_CONFIG, split or self.split
        if split is None:
            raise UnavailableError(
                str(self),
                "no split",
                "an address that names configuration and split",
                f"add them, for example datasets:{self.repo}@{self.revision}:{config}:test",
            )
        file = self.file(config, split)
        if not file.is_file():
            raise UnavailableError(
                str(self),
                f"no rows of configuration {config!r} and split {split!r} on this machine",
                "rows that `lce fetch` has downloaded",
                f"run `lce fetch {RowsAddress(self.repo, self.revision, config, split)}` while"
                " connected to the hub",
            )
        return file


def rows_address(place: Path) -> RowsAddress | None:
    """Return the parts of a "datasets:" address; None for a local folder or a "hub:" address."""
    expected = (
        "datasets:OWNER/NAME@COMMIT:CONFIG:SPLIT with the 40 hex digits of a commit; SPLIT, or both"
        " CONFIG and SPLIT, may be left out"
    )
    found = _parts(place, _ROWS, "data set", expected, _FIND_COMMIT)
    return RowsAddress(**found) if found else None


def is_address(place: Path) -> bool:
    """Return True if a data folder is the address of a data set on the hub."""
    return _address(place) is not None or rows_address(place) is not None


def _address(place: Path) -> tuple[str, str] | None:
    expected = "hub:OWNER/NAME@COMMIT with the 40 hex digits of a commit"
    remedy = f"{_FIND_COMMIT}, or give a local folder"
    found = _parts(place, _ADDRESS, "data folder", expected, remedy)
    return (found["repo"], found["revision"]) if found else None


def _parts(
    place: Path, form: re.Pattern[str], where: str, expected: str, remedy: str
) -> dict[str, Any]:
    """Return the parts of an address by name; {} if `place` has not the scheme of `form`."""
    address, scheme = str(place), form.pattern.partition(":")[0]
    if not address.startswith(f"{scheme}:"):
        return {}
    if found := form.fullmatch(address):
        return found.groupdict()
    raise SpecError(where, address, expected, remedy)


def given_names(folders: Mapping[str, Path]) -> str:
    return f" among the given {', '.join(sorted(folders))}" if folders else ", and none was given"


def local_folder(place: Path, patterns: Sequence[str]) -> Path:
    """Return the local folder of a data set, downloading a hub data set if it is not cached."""
    if rows := rows_address(place):
        return rows.fetched().parent
    address = _address(place)
    return place if address is None else fetch(*address, patterns, patterns, "dataset")


def fetch_rows(address: RowsAddress) -> Iterator[Path]:
    """Download the rows of every split that an address covers, if missing; yield each file."""
    config, split = address.config, address.split
    if config and split and (file := address.file(config, split)).is_file():
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


def _split_files(address: RowsAddress) -> list[str]:
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
    start = _prefix(address.repo, address.revision)
    return [path.removeprefix(start) for path in by_name[address.split]]


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
    start = _prefix(address.repo, address.revision)
    for name in sorted(_listed_files(address.repo, address.revision, str(address))):
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
        raise UnavailableError(
            str(address),
            f"a download that failed ({first_line(error)})",
            "a connection to the hub, and this data set on it",
            f"check the connection and the address, then run `lce fetch {address}` again",
        ) from error
    except ValueError as error:
        raise DataError(
            str(address),
            f"rows that cannot be read ({first_line(error)})",
            "files of the format that their names state",
            "take another commit, or give a folder with the data set's files",
        ) from error
