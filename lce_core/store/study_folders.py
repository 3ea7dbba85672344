"""What a home keeps of each study: home/studies/<study>/ with its plan, source and lock."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lce_core.store.listing import Listing
from lce_core.store.odd_files import make_folder, put, read_file, read_mapping
from lce_core.store.plain_text import lone_surrogates, writable
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

    def plan(self, study: str) -> dict[str, Any] | None:
        """Return a study as last planned; None if it never was.

        Raises:
          OSError: the file cannot be read.
          ValueError: the file is no plan.
        """
        path = self._folder / study / PLAN
        return _plan(path) if path.exists() else None

    def plans(self) -> list[dict[str, Any]]:
        """Return all studies as last planned, by name, for whoever shows them.

        What cannot be read of one study never hides another: such a plan is left out, and text that
        cannot be written is replaced, each with a line on standard error.
        """
        plans = []
        for path in sorted(self._folder.glob(f"*/{PLAN}")):
            try:
                plans.append(_plan(path, say=True))
            except (OSError, ValueError) as error:
                what = f"{type(error).__name__}: {error}".splitlines()[0]
                sys.stderr.write(f"lce: {path} is no plan ({what}); its study is left out\n")
        return plans

    def _made(self, study: str) -> Path:
        return make_folder(self._folder / study)


def _plan(path: Path, *, say: bool = False) -> dict[str, Any]:
    plan = read_plan(path)
    # Plans are ASCII, so that a lone surrogate is spelt "\\ud800"; most plans hold no such thing.
    if b"\\u" not in read_file(path) or not (places := lone_surrogates(plan)):
        return plan
    if say:
        more = f" and {len(places) - 1} more places" if len(places) > 1 else ""
        what = "half of a surrogate pair, which UTF-8 cannot write; U+FFFD is shown in its place"
        sys.stderr.write(f"lce: {path}: {places[0]}{more}: {what}\n")
    clean: dict[str, Any] = writable(plan)
    return clean
