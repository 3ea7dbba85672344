"""Read and write record.json, the file that describes an artifact (the result of a step)."""

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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from lce_core.environment import numeric_switches, passed
from lce_core.store.odd_files import (
    json_object,
    lone_surrogates,
    read_file,
    write_file,
)
from lce_core.store.steps import Step

RECORD = "record.json"
COMMIT = "commit.json"
"""File that `lce pack` writes beside this module, because a packed copy is no git checkout."""
WEIGHTS = "model"
"""Folder of an artifact with the weights of a training run. No other step has such a folder."""
FORMAT = 1
_SEAL = "seal"

PROMPT_LIBRARIES = ("numpy", "tokenizers", "transformers")
"""Libraries whose version can change the random numbers or tokens of prompts."""
_LIBRARIES = (
    *PROMPT_LIBRARIES,
    "lce",
    "torch",
    "accelerate",
    "datasets",
    "pyarrow",
    "safetensors",
    "pydantic",
    "prefect",
    "mlflow",
    "duckdb",
    "flash-attn",
    "lm-eval",
)


class SealError(ValueError):
    """The content of record.json does not match the digest in it: it was edited or damaged."""


class FileEntry(BaseModel):
    """Size and sha256 of one file of an artifact."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: int
    sha256: str


class PluginCode(BaseModel):
    """VERSION and code digest of a user's own plug-in at the time it ran."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int
    sha256: str
    """Digest of the plug-in's file and helper modules (`lce_core.store.plugin_code`)."""
    file: str
    """Path of the plug-in's file when it ran."""
    package: str | None = Field(default=None, exclude_if=lambda package: package is None)
    """Installed package that contains the plug-in, such as "acme-rope 1.2". A record of a plug-in
    from a folder lacks this key."""


class Record(BaseModel):
    """Content of an artifact's record.json, which is written after all other files.

    The fields from `kind` to `axes` are those of the computed `Step`.
    """

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
    """Numbers and texts that the step computed, such as a cell's scores."""
    environment: dict[str, Any]
    execution: dict[str, Any]
    started_at: str
    """Start time in UTC, ISO 8601."""
    finished_at: str
    seconds: float
    """Wall-clock seconds of computation, summed over all workers and attempts that contributed."""
    attempts: int
    plugins: dict[str, PluginCode] = {}
    """Code of the user's own plug-ins that the step used, by name such as "methods/mine"."""

    @classmethod
    def read(cls, folder: Path) -> Record:
        return cls.parse(read_file(folder / RECORD))

    @classmethod
    def find(cls, folder: Path) -> Record | None:
        """Return the record in `folder`; None if it is missing, damaged or unreadable."""
        try:
            return cls.read(folder)
        except (OSError, ValueError):
            return None

    @property
    def step(self) -> Step:
        return Step(**{name: getattr(self, name) for name in Step.__dataclass_fields__})

    @classmethod
    def parse(cls, written: bytes) -> Record:
        """Parse a record.json; SealError if it was edited, ValueError if it is no record."""
        content = json_object(written)
        if "format" not in content:
            raise ValueError(f"{RECORD} is not a record")
        seal = content.pop(_SEAL, None)
        if seal != _seal_of(content):
            raise SealError(f"{RECORD} was changed after it was written")
        if places := lone_surrogates(written, content):
            raise ValueError(f"{places[0]} of {RECORD} has half of a surrogate pair")
        return cls.model_validate(content)

    def files_in(self, folder: Path) -> dict[str, FileEntry]:
        """Return the files that an undamaged artifact in `folder` has.

        They exclude the weights if that whole folder is absent: a user deleted hundreds of
        gigabytes, or left them on the machine that trained. Losses and facts of the training stay.
        """
        weights = {name for name in self.files if name.startswith(f"{WEIGHTS}/")}
        if not weights or os.path.lexists(folder / WEIGHTS):
            return self.files
        return {name: entry for name, entry in self.files.items() if name not in weights}

    def fault_in(self, folder: Path, digest: Callable[[Path], str] | None = None) -> str | None:
        """Return the first fault of an artifact's files such as "weights.bin is missing", or None.

        Their sha256 is checked only with `digest`. Absent weights are no fault (`files_in`).
        """
        files = self.files_in(folder)
        for name, entry in files.items():
            try:
                size = (folder / name).stat().st_size
            except OSError:
                return f"{name} is missing"
            if size != entry.bytes:
                return f"{name} has {size} bytes; its record says {entry.bytes}"
        if digest is None:
            return None
        for name, entry in files.items():
            try:
                sha256 = digest(folder / name)
            except OSError as error:
                return f"{name} cannot be read ({error.strerror})"
            if sha256 != entry.sha256:
                return f"the content of {name} is not what its record says"
        return None

    def has_weights_elsewhere(self, folder: Path) -> bool:
        return len(self.files_in(folder)) < len(self.files)

    def write(self, folder: Path) -> None:
        """Write and seal record.json; ValueError if a plug-in's result could not be read again."""
        content = sealed(self.model_dump(mode="json"))
        self.parse(json.dumps(content).encode())
        write_json(folder / RECORD, content)


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's JSON content with a field "seal": the sha256 of all other fields."""
    bare = {key: value for key, value in content.items() if key != _SEAL}
    return {**bare, _SEAL: _seal_of(bare)}


def _seal_of(content: Mapping[str, Any]) -> str:
    # The seal survives a JSON round trip: repr writes a float's shortest form, which parses to the
    # same float.
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def environment() -> dict[str, Any]:
    """Return Python version, libraries, git commit, hardware and switches of libraries as JSON."""
    # Cache only `_host`: a process may import torch after it has written its first artifact.
    torch: Any = sys.modules.get("torch")
    # Rounding differs between the instruction sets of torch's CPU kernels.
    instructions = None if torch is None else torch.backends.cpu.get_cpu_capability()
    found = {**_host(), "instructions": instructions, "accelerators": _accelerators()}
    switches = numeric_switches(os.environ)  # noqa: TID251 - they may change the last digits
    return {**found, "switches": switches} if switches else found


@functools.cache
def _host() -> dict[str, Any]:
    libraries = {}
    for name in _LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            libraries[name] = importlib.metadata.version(name)
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "cpu": cpu_name(),
        "cpu_count": os.cpu_count(),
        "libraries": libraries,
        "git": git_state(Path(__file__).parent),
    }


def git_state(folder: Path) -> dict[str, Any]:
    """Return the `commit` of lce's git checkout, and `dirty`: True if tracked files have changes.

    Both are None outside a checkout. A packed copy of lce has them in a file.
    """
    with contextlib.suppress(OSError):
        packed: dict[str, Any] = json.loads((folder / COMMIT).read_text(encoding="ascii"))
        return packed

    def git(*arguments: str) -> str | None:
        try:
            process = subprocess.run(
                ["git", "-C", str(folder), *arguments],
                env=passed(os.environ),  # noqa: TID251 - GIT_DIR would name another repository
                capture_output=True,
                text=True,
                timeout=10,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return process.stdout.strip() if process.returncode == 0 else None

    # lce may be installed inside another project's checkout, which does not track records.py.
    if not git("ls-files", "--error-unmatch", "records.py"):
        return {"commit": None, "dirty": None}
    changed = git("status", "--porcelain", "--untracked-files=no")
    return {"commit": git("rev-parse", "HEAD"), "dirty": None if changed is None else bool(changed)}


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file atomically (`write_file`) and durably: it survives a machine crash."""
    text = json.dumps(value, indent=1, sort_keys=True, allow_nan=False)
    write_file(path, f"{text}\n".encode(), durable=True)


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@functools.cache
def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _accelerators() -> list[str]:
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return []
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
