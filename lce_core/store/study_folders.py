"""What a home keeps of each study: home/studies/<study>/ with its plan, source and lock."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lce_core.store.listing import Listing
from lce_core.store.odd_files import make_folder, put, read_mapping
from lce_core.store.planned import PLAN, read_plan, replace_plan
from lce_core.store.records import write_json

LOCK = "study.lock"
_SOURCE = "source.json"


class StudyFolders:
    """One folder for each study that was ever planned or locked in this home."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "studies"
        self._artifacts = home / "artifacts"

    def save_plan(self, study: str, plan: Mapping[str, Any], source: str) -> None:
        """Writes the study's cells, for the catalog, and the file they were read from."""
        folder = self._made(study)
        replace_plan(folder, plan, Listing(self._artifacts).ids)
        write_json(folder / _SOURCE, {"file": source})

    def keep_lock(self, study: str, text: str) -> None:
        """Keeps a study's lock: what it names stays, whatever the study is planned as later."""
        folder = self._made(study)
        aside = folder / f".{LOCK}.{uuid.uuid4().hex[:8]}"
        try:
            aside.write_text(text, encoding="utf-8")
            put(aside, folder / LOCK)
        finally:
            aside.unlink(missing_ok=True)

    def source(self, study: str) -> str | None:
        """The file a study was last planned from; None if it never was."""
        try:
            return str(read_mapping(self._folder / study / _SOURCE)["file"])
        except (OSError, ValueError, KeyError):
            return None

    def plans(self) -> list[dict[str, Any]]:
        """Return all studies as last planned, by name, without those of `broken`."""
        return [plan for _, plan in self._read() if plan is not None]

    def broken(self) -> list[Path]:
        """Return the files that are no plans; other studies are shown without these."""
        return [path for path, plan in self._read() if plan is None]

    def _read(self) -> Iterator[tuple[Path, dict[str, Any] | None]]:
        for path in sorted(self._folder.glob(f"*/{PLAN}")):
            try:
                yield path, read_plan(path)
            except (OSError, ValueError):
                yield path, None

    def _made(self, study: str) -> Path:
        return make_folder(self._folder / study)
