"""Fetch one pinned revision of a hub repository as a local folder, or fail quickly with a reason.

A data set has two forms of address: `hub:OWNER/NAME@COMMIT` names the repository's files, and
`datasets:OWNER/NAME@COMMIT:CONFIG:SPLIT` the rows that `datasets.load_dataset` returns. Only
`lce fetch` downloads rows (`lce_core.hub_rows`); this module finds them without network access.

A complete copy in the local hub cache is used without network access. Otherwise one request with a
timeout of a few seconds decides whether the hub answers at all, because the download client retries
for almost half a minute. The client (huggingface_hub from 2.4) detects an incomplete copy by its
cached file listing; if it has none, the numbers in the names of weight shards reveal missing files.
Only files that match the given patterns are fetched, never pickled weights or code.
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
"""Name that `datasets` gives the configuration of a data set that declares none."""


def fetch(
    repo: str,
    revision: str,
    patterns: Sequence[str],
    required: Sequence[str],
    kind: Literal["model", "dataset"],
) -> Path:
    """Return a folder with the files of `repo` at `revision` that match `patterns`.

    Args:
      repo: hub repository.
      revision: commit of 40 hexadecimal digits; a branch could change during a study.
      patterns: globs of the files to fetch, at any depth.
      required: globs. A cached copy counts as complete if a file matches any of them and no shard
        of split weights is missing. If empty, only the shards are checked.
      kind: type of the repository.

    Raises:
      UnavailableError: if the files are neither cached nor reachable.
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
    """Return the folder of a complete copy in the hub cache, as `fetch` would; None without one."""
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
    """Return False if a weight shard is missing, judged by names like model-00001-of-00003.

    An interrupted download leaves only some shards in the cache. If no file listing is cached, the
    hub client treats such a copy as complete.
    """
    for file in folder.rglob("*.safetensors"):
        if found := _SHARD.fullmatch(file.name):
            name, number = found["name"], int(found["number"])
            others = (f"{name}-{i:05}-of-{number:05}.safetensors" for i in range(1, number + 1))
            if not all((file.parent / other).exists() for other in others):
                return False
    return True


def http_errors() -> tuple[type[Exception], ...]:
    """Return the exception classes that mean an unreachable hub or an interrupted transfer."""
    from huggingface_hub.errors import HfHubHTTPError

    # The HTTP library changes between hub versions; its error is a base of the hub's own error.
    return cast("tuple[type[Exception], ...]", (OSError, *HfHubHTTPError.__bases__))


def listed(place: Path) -> tuple[str, list[str]]:
    """List the files of a data set on the hub without downloading them.

    Args:
      place: an address of the form hub:OWNER/NAME@COMMIT.

    Returns:
      Prefix "hf://datasets/OWNER/NAME@COMMIT/" of the files' URLs, and the files' paths in the
        repository.

    Raises:
      UnavailableError: if the hub does not answer, or has no such data set.
    """
    address = _address(place)
    assert address, f"{place} is a folder"
    return prefix(*address), listed_files(*address, str(place))


def prefix(repo: str, revision: str) -> str:
    """Return the beginning of the URLs of a data set's files, with a slash at the end."""
    return f"hf://datasets/{repo}@{revision}/"


def listed_files(repo: str, revision: str, where: str) -> list[str]:
    """Return the paths of all files of a data set on the hub; `where` names it in the error.

    Raises:
      UnavailableError: if the hub does not answer, or has no such data set.
    """
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
    """Commit of 40 hexadecimal digits; a branch could change during a study."""
    config: str | None = None
    split: str | None = None

    def __str__(self) -> str:
        parts = [f"datasets:{self.repo}@{self.revision}", self.config, self.split]
        return ":".join(part for part in parts if part is not None)

    def file(self, config: str, split: str) -> Path:
        """Return the path below $HF_HOME at which `lce fetch` stores the rows of a split."""
        from huggingface_hub import constants

        folder = Path(constants.HF_HOME) / "lce" / self.repo / self.revision / config / split
        return folder / f"{config}.jsonl"

    def fetched(self, config: str | None = None, split: str | None = None) -> Path:
        """Return the JSON lines file with the rows of one split, in a folder of its own.

        Args:
          config: the configuration that the reader needs; None reads the address's, or "default".
          split: the split that the reader needs; None reads the address's.

        Raises:
          UnavailableError: if the address names another configuration or split, or names none where
            one is needed, or if `lce fetch` has not downloaded the rows.
        """
        needs = (("configuration", config, self.config), ("split", split, self.split))
        for what, needed, named in needs:
            if needed is not None and named not in (None, needed):
                raise UnavailableError(
                    str(self),
                    f"{what} {named!r}",
                    f"{what} {needed!r}",
                    f"leave configuration and split out of the address, so that every task reads"
                    f" its own {what}",
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
    """Return the parts of a "datasets:" address; None for a local folder or a "hub:" address.

    Raises:
      SpecError: if it starts with "datasets:" but is not a valid address.
    """
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
    """Return True if a data folder is the address of a data set on the hub.

    Raises:
      SpecError: if it starts with "hub:" or "datasets:" but is not a valid address.
    """
    return _address(place) is not None or rows_address(place) is not None


def _address(place: Path) -> tuple[str, str] | None:
    """Return repository and commit of a "hub:" address; None for all other places."""
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
    """Return a phrase that lists the names of data folders, for messages about a missing name."""
    return f" among the given {', '.join(sorted(folders))}" if folders else ", and none was given"


def local_folder(place: Path, patterns: Sequence[str]) -> Path:
    """Return the local folder of a data set, downloading a hub data set if it is not cached.

    The rows of a "datasets:" address are not downloaded; its folder contains one JSON lines file.

    Args:
      place: A local folder, which is returned unchanged, or an address accepted by `is_address`.
      patterns: Globs of the files to download.

    Raises:
      SpecError: if `place` starts with "hub:" or "datasets:" but is not a valid address.
      UnavailableError: if the hub's files are neither cached nor reachable, or the rows are not on
        this machine.
    """
    if rows := rows_address(place):
        return rows.fetched().parent
    address = _address(place)
    return place if address is None else fetch(*address, patterns, patterns, "dataset")
