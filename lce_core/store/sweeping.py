"""Remove the files that killed processes left in a store. Every run does this when it starts."""

from __future__ import annotations

import contextlib
import re
import time

from lce_core.store.artifacts import ATTEMPT, Store
from lce_core.store.lease import is_held, locked
from lce_core.store.odd_files import remove
from lce_core.store.parts import PART_LEASES

ABANDONED_SECONDS = 3600.0
"""Live processes rename their temporary files within seconds."""
_WRITTEN_ASIDE = ("cache", "failures", "leases", "mlflow", "services", "studies/*", "verifications")
"""Folders of a home in which lce writes temporary files."""
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{8}|\.probe-.+")
"""Names of temporary files of `write_file` and of file system tests."""


def sweep(store: Store) -> list[str]:
    """Remove leftovers of dead processes; return names of removed unfinished artifacts.

    These are unfinished artifacts without a live lease on any host, leases of parts whose worker
    died, old temporary files, and the progress, leases and failures of finished steps. A step with
    a damaged artifact is unfinished: another process may be computing it again.
    """
    swept, leases = [], store.home / "leases"
    with locked(leases):
        for folder in sorted((store.home / "artifacts").glob(f"*/{ATTEMPT}*")):
            if not is_held(leases, folder.name.removeprefix(ATTEMPT).split("-")[0]):
                remove(folder)
                swept.append(folder.name)
        stored, of_parts = store.listing().ids, set(leases.glob(PART_LEASES))

        def is_finished(step_id: str) -> bool:
            is_stored = step_id in stored and not is_held(leases, step_id)
            return is_stored and store.has_finished(step_id)

        for folder in sorted((store.home / "progress").glob("*")):
            if is_finished(folder.name):
                remove(folder)
        # After a step failed here, another host may have finished it: drop the old failure.
        for step_id in filter(is_finished, store.failures.all()):
            store.failures.forget(step_id)
        for lease in sorted(leases.glob("*.json")):
            is_dead_part = lease in of_parts and not is_held(leases, lease.stem)
            if is_dead_part or is_finished(lease.stem):
                remove(lease)
    _sweep_temporary_files(store)
    return swept


def _sweep_temporary_files(store: Store) -> None:
    for place in ("", *_WRITTEN_ASIDE):
        for left in store.home.glob(f"{place}/.*" if place else ".*"):
            with contextlib.suppress(OSError):  # another process may remove it first
                is_old = time.time() - left.lstat().st_mtime > ABANDONED_SECONDS
                if is_old and _UNFINISHED.fullmatch(left.name):
                    remove(left)
