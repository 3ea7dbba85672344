"""What a home keeps of each study: home/studies/<study>/ with its plan, source and lock."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lce_core.store.listing import Listing
from lce_core.store.planned import PLAN, replace_plan
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
        aside.write_text(text, encoding="utf-8")
        aside.replace(folder / LOCK)

    def source(self, study: str) -> str | None:
        """The file a study was last planned from; None if it never was."""
        try:
            content = (self._folder / study / _SOURCE).read_text(encoding="utf-8")
            file: str = json.loads(content)["file"]
        except (OSError, ValueError, KeyError):
            return None
        return file

    def plans(self) -> list[dict[str, Any]]:
        """All studies as last planned, by name."""
        paths = sorted(self._folder.glob(f"*/{PLAN}"))
        return [json.loads(path.read_text(encoding="utf-8")) for path in paths]

    def _made(self, study: str) -> Path:
        folder = self._folder / study
        folder.mkdir(parents=True, exist_ok=True)
        return folder
