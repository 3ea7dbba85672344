"""What is written beside every artifact: record.json, and how this machine looks."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import socket
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from lce_core.store.odd_files import put, read_file

RECORD = "record.json"
FORMAT = 2
"""Since 2 every record carries a seal. Records of format 1 have none and stay valid."""
_SEAL = "seal"

_LIBRARIES = (
    "lce torch transformers accelerate tokenizers datasets numpy pyarrow safetensors pydantic"
    " prefect mlflow duckdb flash-attn lm-eval"
)


class SealError(ValueError):
    """The content of a record does not match the record's seal."""


class FileEntry(BaseModel):
    """Size and content of one file of an artifact."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: int
    sha256: str


class PluginCode(BaseModel):
    """A plug-in of the user's own as it ran: its VERSION, and the digest of its code."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int
    sha256: str
    """`lce_core.store.plugin_code.code_digest` of the plug-in's file and its helpers."""
    file: str
    """Where the plug-in's file lay."""


class Record(BaseModel):
    """One finished step. Written last: its presence means the artifact is complete."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = FORMAT
    kind: str
    name: str
    fingerprint: str
    spec: dict[str, Any]
    parents: dict[str, str]
    lineage: dict[str, Any]
    axes: dict[str, Any]
    files: dict[str, FileEntry]
    result: dict[str, Any]
    """What the step reports: scores of a cell, steps and tokens of a training run."""
    environment: dict[str, Any]
    execution: dict[str, Any]
    started_at: str
    """UTC, ISO 8601."""
    finished_at: str
    seconds: float
    """Of one worker: those of several that computed parts of the step are added up."""
    attempts: int
    """Attempts it took, the successful one included."""
    plugins: dict[str, PluginCode] = {}
    """The user's own plug-ins that the spec names, by kind and name ("methods/mine"). Empty without
    any, and in records of older versions of lce, which kept no digests."""

    @property
    def is_sealed(self) -> bool:
        """Return True if a changed field would be noticed: records of format 1 have no seal."""
        return self.format > 1

    @classmethod
    def read(cls, folder: Path) -> Record:
        """Read and verify `folder`/record.json.

        Raises:
          OSError: the file cannot be read.
          SealError: the content is not what was written.
          ValueError: the file is no record.
        """
        return cls.parse(read_file(folder / RECORD))

    @classmethod
    def parse(cls, written: bytes) -> Record:
        """Verify the content of a record.json.

        Raises:
          SealError: the content is not what was written.
          ValueError: the content is no record.
        """
        try:
            content = json.loads(written)
            if not isinstance(content, dict) or "format" not in content:
                raise ValueError(f"{RECORD} holds no record")
            seal = content.pop(_SEAL, None)
            unsealed = seal is None and content.get("format") == 1
            if not unsealed and seal != _seal_of(content):
                raise SealError(f"{RECORD} was changed after it was written")
            return cls.model_validate(content)
        except RecursionError:
            raise ValueError(f"{RECORD} is nested too deeply") from None

    def write(self, folder: Path) -> None:
        """Write `folder`/record.json with its seal, by renaming a whole file into place."""
        content = self.model_dump(mode="json")
        if not self.plugins:
            del content["plugins"]  # older versions of lce refuse fields that they do not know
        write_json(folder / RECORD, sealed(content))


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's JSON content with the sha256 of that content as its last field."""
    bare = {key: value for key, value in content.items() if key != _SEAL}
    return {**bare, _SEAL: _seal_of(bare)}


def _seal_of(content: Mapping[str, Any]) -> str:
    # A parsed number is written as it was: Python's shortest repr of a float survives the way.
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def environment() -> dict[str, Any]:
    """Code, libraries and hardware of this process; no secrets, no environment variables."""
    # A process may load torch after it made its first artifact.
    return {**_host(), "instructions": _instructions(), "accelerators": _accelerators()}


@functools.cache
def _host() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "cpu": cpu_name(),
        "cpu_count": os.cpu_count(),
        "libraries": _versions(),
        "git": git_state(Path(__file__).parent),
    }


def git_state(folder: Path) -> dict[str, Any]:
    """Commit and dirty flag of the checkout that holds `folder`; nulls outside a checkout."""

    def git(*arguments: str) -> str | None:
        try:
            answer = subprocess.run(
                ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return answer.stdout.strip() if answer.returncode == 0 else None

    # An installed copy may lie inside somebody else's checkout: ours tracks this very file.
    if not git("ls-files", "--error-unmatch", "records.py"):
        return {"commit": None, "dirty": None}
    changed = git("status", "--porcelain", "--untracked-files=no")
    return {"commit": git("rev-parse", "HEAD"), "dirty": None if changed is None else bool(changed)}


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes JSON aside and renames it into place, so that readers never see half a file."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with aside.open("w", encoding="utf-8") as file:
            json.dump(value, file, indent=1, sort_keys=True, allow_nan=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        put(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)  # a full disk would fill up with them
        raise


def sync(path: Path) -> None:
    """Makes a file's content, or the names in a folder, survive a crash of the machine."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES.split():
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def cpu_name() -> str:
    """The model of this machine's CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _loaded_torch() -> Any:
    """Only asked of processes that loaded it anyway: a planner must not pay for it."""
    return sys.modules.get("torch")


def _instructions() -> str | None:
    """Vector instructions that torch's CPU kernels use here: on them rounding depends."""
    torch = _loaded_torch()
    return None if torch is None else torch.backends.cpu.get_cpu_capability()


def _accelerators() -> list[str]:
    torch = _loaded_torch()
    if torch is None or not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
