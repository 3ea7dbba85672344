"""Fetch one pinned revision of a hub repository as a local folder, or fail quickly with a reason.

A data set has two forms of address: `hub:OWNER/NAME@COMMIT` names the repository's files, and
`datasets:OWNER/NAME@COMMIT:CONFIG:SPLIT` the rows that `datasets.load_dataset` returns. Only `lce
fetch` downloads rows (`lce_core.hub_rows`); this module finds them without network access.

A complete copy in the local hub cache is used without network access. Otherwise one request with a
short timeout decides whether the hub answers, because the client retries for half a minute. The
client detects an incomplete copy by its cached file listing; if it has none, the numbers in the
names of weight shards reveal missing files. Pickled weights and code are never fetched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from lce_core.errors import SpecError, UnavailableError

TIMEOUT_SECONDS = 5.0
_SHARD = re.compile(r"(?P<name>.+)-\d{5}-of-(?P<number>\d{5})\.safetensors")
_PINNED = r"(?P<repo>[\w.-]+/[\w.-]+)@(?P<revision>[0-9a-f]{40})"
_ADDRESS = re.compile(f"hub:{_PINNED}")
_ROWS = re.compile(f"datasets:{_PINNED}" + r"(:(?P<config>[^:/\s]+)(:(?P<split>[\w.]+))?)?")
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

    if (found := cached(repo, revision, patterns, required, kind)) is not None:
        return found
    wanted = list(patterns)
    try:
        HfApi().repo_info(repo, repo_type=kind, revision=revision, timeout=TIMEOUT_SECONDS)
        return Path(
            snapshot_download(repo, repo_type=kind, revision=revision, allow_patterns=wanted)
        )
    except http_errors() as error:
        raise UnavailableError(
            f"{repo}@{revision}",
            f"files that are neither in the hub cache nor reachable ({_reason(error)})",
            "files in the cache, or a connection to the hub",
            "connect to the hub and try again (`lce run` with --retry-failed), or give a local"
            f" folder with --{kind.removesuffix('set')}-folder",
        ) from error


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
    """Return False if a weight shard is missing, by names like model-00001-of-00003.

    If no file listing is cached, the hub client takes an interrupted download for complete.
    """
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


def listed(place: Path) -> tuple[str, list[str]]:
    """List the files of a data set (hub:OWNER/NAME@COMMIT) without downloading them.

    Returns the prefix "hf://datasets/OWNER/NAME@COMMIT/" of the files' URLs, and their paths.
    """
    address = _address(place)
    assert address, f"{place} is a folder"
    return prefix(*address), listed_files(*address, str(place))


def prefix(repo: str, revision: str) -> str:
    return f"hf://datasets/{repo}@{revision}/"


def listed_files(repo: str, revision: str, where: str) -> list[str]:
    """Return the paths of all files of a data set on the hub; `where` names it in the error."""
    from huggingface_hub import HfApi

    try:
        info = HfApi().dataset_info(repo, revision=revision, timeout=TIMEOUT_SECONDS)
    except http_errors() as error:
        raise UnavailableError(
            where,
            f"a hub that does not list its files ({_reason(error)})",
            "a connection to the hub, and this data set on it",
            "check the connection and the address, then run again with --retry-failed, or give a"
            " local folder with --data-folder",
        ) from error
    return [file.rfilename for file in info.siblings or ()]


def _reason(error: Exception) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}".rstrip(": ")


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

        Raises:
          UnavailableError: if the address does not cover these, or the rows are not downloaded.
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
    if not str(place).startswith("datasets:"):
        return None
    found = _ROWS.fullmatch(str(place))
    if found is None:
        raise SpecError(
            "data set",
            str(place),
            "datasets:OWNER/NAME@COMMIT:CONFIG:SPLIT with the 40 hex digits of a commit;"
            " SPLIT, or both CONFIG and SPLIT, may be left out",
            _FIND_COMMIT,
        )
    return RowsAddress(found["repo"], found["revision"], found["config"], found["split"])


def is_address(place: Path) -> bool:
    """Return True if a data folder is the address of a data set on the hub."""
    return _address(place) is not None or rows_address(place) is not None


def _address(place: Path) -> tuple[str, str] | None:
    if not str(place).startswith("hub:"):
        return None
    found = _ADDRESS.fullmatch(str(place))
    if found is None:
        raise SpecError(
            "data folder",
            str(place),
            "hub:OWNER/NAME@COMMIT with the 40 hex digits of a commit",
            f"{_FIND_COMMIT}, or give a local folder",
        )
    return found["repo"], found["revision"]


def given_names(folders: Mapping[str, Path]) -> str:
    return f" among the given {', '.join(sorted(folders))}" if folders else ", and none was given"


def local_folder(place: Path, patterns: Sequence[str]) -> Path:
    """Return the local folder of a data set, downloading a hub data set if it is not cached."""
    if rows := rows_address(place):
        return rows.fetched().parent
    address = _address(place)
    return place if address is None else fetch(*address, patterns, patterns, "dataset")
