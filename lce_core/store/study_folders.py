"""Read and write home/studies/<study>/: the last plan, the path of the study file, and the lock."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lce_core.store.listing import Listing
from lce_core.store.odd_files import make_folder, read_file, read_mapping, write_file
from lce_core.store.plain_text import lone_surrogates, may_have_surrogates, writable
from lce_core.store.planned import (
    EXPECTATIONS,
    LOOKS,
    PLAN,
    all_looks,
    looks,
    read_plan,
    record_look,
    register,
    registrations,
    replace_plan,
)
from lce_core.store.records import write_json

LOCK = "study.lock"
_SOURCE = "source.json"


class StudyFolders:
    """The folders home/studies/<study>/ of all studies that have been planned in one home."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "studies"
        self._artifacts = home / "artifacts"

    def save_plan(self, study: str, plan: Mapping[str, Any], source: str) -> None:
        """Save a study's plan, its study file's path and new hypotheses or expectations.

        The plan's key `arguments` has the arguments of `lce run` that compute the study.
        """
        folder, held = self._make_folder(study), Listing(self._artifacts).ids
        register(folder, plan, held)
        replace_plan(folder, plan, held)
        write_json(folder / _SOURCE, {"file": source})

    def keep_lock(self, study: str, text: str) -> None:
        """Save the text of a study.lock, so that `lce gc` keeps the artifacts that it names."""
        write_file(self._make_folder(study) / LOCK, text.encode())

    def source(self, study: str) -> str | None:
        """Return the path of the last planned study file; None if unknown."""
        try:
            return str(read_mapping(self._folder / study / _SOURCE)["file"])
        except (OSError, ValueError, KeyError):
            return None

    def plan(self, study: str) -> dict[str, Any] | None:
        """Return a study's last plan (see `StudyPlan.to_json`), or None if there is none."""
        path = self._folder / study / PLAN
        return _plan(path) if path.exists() else None

    def arguments(self, study: str) -> list[str]:
        try:
            return list(read_plan(self._folder / study / PLAN).get("arguments", []))
        except (OSError, ValueError):
            return []

    def plans(self) -> list[dict[str, Any]]:
        """Return the last plans of all studies, sorted by study name, for display.

        So that one broken study does not hide the others, skip unreadable plans and replace lone
        surrogates. Report both on standard error.
        """
        plans = []
        for path in sorted(self._folder.glob(f"*/{PLAN}")):
            try:
                plans.append(_plan(path, warn=True))
            except (OSError, ValueError) as error:
                what = f"{type(error).__name__}: {error}".splitlines()[0]
                sys.stderr.write(f"lce: {path} is not a plan ({what}); its study is not shown\n")
        return plans

    def registrations(self) -> dict[str, list[dict[str, Any]]]:
        """Return the versions of each study's hypothesis and expectations (see `planned`)."""
        found = sorted(self._folder.glob(f"*/{EXPECTATIONS}"))
        return {
            file.parent.name: writable(
                [
                    one
                    for one in registrations(file.parent)
                    if one.get("study", file.parent.name) == file.parent.name
                ]
            )
            for file in found
        }

    def looks(self, plan: Mapping[str, Any]) -> list[dict[str, Any]]:
        return looks(self._folder / plan["study"], plan) if "looks" in plan else []

    def latest_looks(self) -> dict[str, list[dict[str, Any]]]:
        found = {}
        for file in sorted(self._folder.glob(f"*/{LOOKS}")):
            digests = [version["sha256"] for version in registrations(file.parent)]
            own = [one for one in all_looks(file.parent) if one["sha256"] in digests[-1:]]
            found[file.parent.name] = writable(own)
        return found

    def has_other_looks(self, plan: Mapping[str, Any]) -> bool:
        return bool(all_looks(self._folder / plan["study"])) and not self.looks(plan)

    def record_look(
        self, plan: Mapping[str, Any], look: int, comparisons: Iterable[Mapping[str, Any]]
    ) -> None:
        record_look(self._make_folder(plan["study"]), plan, look, comparisons)

    def _make_folder(self, study: str) -> Path:
        return make_folder(self._folder / study)


def _plan(path: Path, *, warn: bool = False) -> dict[str, Any]:
    plan = read_plan(path)
    if not may_have_surrogates(read_file(path)) or not (places := lone_surrogates(plan)):
        return plan
    if warn:
        more = f" and {len(places) - 1} more places" if len(places) > 1 else ""
        what = "half of a surrogate pair, which UTF-8 cannot encode; lce shows U+FFFD instead"
        sys.stderr.write(f"lce: {path}: {places[0]}{more}: {what}\n")
    clean: dict[str, Any] = writable(plan)
    return clean
