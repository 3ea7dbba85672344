"""The store: artifacts on disk are the only truth.

    home/artifacts/<kind>/<name>-<fingerprint12>/   an artifact; record.json is written last
    home/artifacts/<kind>/.attempt-...              an unfinished one, swept when its lease is dead
    home/progress/<fingerprint12>/                  resume points of a training run, sealed shards,
                                                    parts of a long cell
    home/failures/<fingerprint12>.json              what went wrong, how often
    home/leases/                                    who computes what
    home/studies/<study>/                           cells as last planned, their source, lock,
                                                    and ids that only earlier plans named
    home/prompts/<fingerprint>.safetensors          prompts that took long to build
    home/verifications/                             cells computed again, and what differed
    home/models/<name>/                             what `lce fetch` wrote of a base model
    home/cache/files                                what is known of files, to save time
    home/accepted_plugins.json                      digests of plug-ins that a user declared equal

An artifact exists if its record is there and every file has the size and sha256 the record says.
`ensure` is the only way in: done? -> lease -> done now? -> run in an attempt -> fsync -> rename.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from lce_core.errors import SpecError, StoreError
from lce_core.store.failure_notes import FailureNotes
from lce_core.store.failures import classify, disk_full
from lce_core.store.file_facts import FileFacts
from lce_core.store.identity import sha256_file
from lce_core.store.lease import Lease, is_held, locked
from lce_core.store.listing import Listing, find
from lce_core.store.modes import follow_folder
from lce_core.store.odd_files import make_folder, no_folder, remove
from lce_core.store.parts import PART_LEASES, Parts
from lce_core.store.records import RECORD, FileEntry, PluginCode, Record, environment, sync
from lce_core.store.steps import Step
from lce_core.store.study_folders import StudyFolders

ATTEMPT = ".attempt-"
ABANDONED_SECONDS = 3600.0
"""Age from which on an unfinished file belongs to nobody: writing one takes seconds."""
_WRITTEN_ASIDE = ("cache", "failures", "leases", "mlflow", "services", "studies/*", "verifications")
"""Folders in which files are written aside, beside the home itself."""
_UNFINISHED = re.compile(r"\..+\.(?:[0-9a-f]{8}|[0-9a-f]{32})|\.files-[0-9a-f]{8}|\.probe-.+")
"""Names of such files."""
WAIT_SECONDS = 0.5


@dataclass
class Attempt:
    """A step being computed: where to write, and where progress survives a crash."""

    step: Step
    out: Path
    progress: Path
    digests: dict[str, str] = field(default_factory=dict)
    """sha256 of files in `out`, by path, that whoever wrote them has computed meanwhile."""
    seconds_elsewhere: float = 0.0
    """Spent on parts of the step by other processes, or by earlier attempts."""
    plugins: dict[str, PluginCode] = field(default_factory=dict)
    """The user's own plug-ins that compute the step, as `Record.plugins` keeps them."""


@dataclass(frozen=True)
class Outcome:
    """What `ensure` found or did."""

    record: Record
    status: Literal["existing", "computed"]


class Store:
    """Artifacts below one home folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.file_facts = FileFacts(home)
        """What is known of files, the store's own and those that steps read."""
        self.failures = FailureNotes(home)
        """What went wrong with steps that are not done."""
        self.studies = StudyFolders(home)
        """What was planned, and what is locked."""

    def prepare(self) -> None:
        """Creates the folders.

        Raises:
          SpecError: the home cannot be written to by this user; nothing was computed.
          StoreError: the disk is full or read-only, or something else lies in a folder's place.
        """
        for place in (self.home, *self.home.parents):
            if os.path.lexists(place) and not place.is_dir():
                raise _unwritable(self.home, f"{place}, which is no folder")
        try:
            for name in (
                "artifacts",
                "progress",
                "failures",
                "leases",
                "studies",
                "prompts",
                "cache",
            ):
                make_folder(self.home / name)
            for kind in (self.home / "artifacts").iterdir():
                if not kind.is_dir():
                    raise no_folder(kind)
            # On other hosts, and in other containers, processes have the same pid.
            probe = self.home / "cache" / f".probe-{uuid.uuid4().hex}"
            probe.write_bytes(b"lce")
            probe.unlink()
        except OSError as error:
            if classify(error) == "disk_full":
                raise disk_full(self.home, error.strerror or str(error)) from None
            raise _unwritable(self.home, error.strerror or str(error)) from None

    @property
    def models(self) -> Path:
        """Folder of the base models that `lce fetch` has written."""
        return self.home / "models"

    @property
    def prompts(self) -> Path:
        """Folder of the prompts that benchmarks have built; its files may go at any time."""
        return self.home / "prompts"

    def parts(self, step: Step) -> Parts:
        """What is there of a step whose parts are computed by themselves."""
        return Parts(self.home / "progress" / step.short, self.home / "leases")

    def listing(self) -> Listing:
        """The artifacts' folders as they are now, for looking up many steps."""
        return Listing(self.home / "artifacts")

    def named(self, step: Step) -> Path:
        """Folder of the step's artifact, if this step's name was the one it was computed under."""
        return self.home / "artifacts" / step.folder

    def path(self, step: Step, listing: Listing | None = None) -> Path:
        """Folder of the step's artifact, there or not.

        The readable part of the name is no identity: an artifact that another label, seed or study
        named is found by its fingerprint, in `listing` or else by looking now.
        """
        named = self.named(step)
        if named.is_dir():
            return named
        if listing is not None:
            return listing.find(step.fingerprint, step.kind) or named
        return self.find(step.fingerprint, step.kind) or named

    def find(self, fingerprint: str, kind: str | None = None) -> Path | None:
        """Folder of the artifact with this fingerprint, of this kind or of any; None without it."""
        return find(self.home / "artifacts", fingerprint, kind)

    def record(self, step: Step, listing: Listing | None = None) -> Record | None:
        """The step's record if its artifact is complete and unchanged, else None."""
        folder = self.path(step, listing)
        try:
            record = Record.read(folder)
        except (OSError, ValueError):
            return None
        if record.fingerprint != step.fingerprint:
            return None
        return record if self.is_intact(folder, record) else None

    def has_finished(self, fingerprint: str) -> bool:
        """Whether an undamaged artifact begins with these digits of a fingerprint."""
        folder = self.find(fingerprint)
        if folder is None:
            return False
        try:
            return self.is_intact(folder, Record.read(folder))
        except (OSError, ValueError):
            return False

    def is_intact(self, folder: Path, record: Record) -> bool:
        """Whether every file in `folder` has the size and content its record says."""
        return all(self._intact(folder / name, entry) for name, entry in record.files.items())

    def records(self) -> Iterator[tuple[Path, Record]]:
        """All readable records with their folders, in name order; files are not verified."""
        for path in sorted((self.home / "artifacts").glob(f"*/*/{RECORD}")):
            if path.parent.name.startswith("."):
                continue
            try:
                yield path.parent, Record.read(path.parent)
            except (OSError, ValueError):
                continue

    def sample(self, most: int) -> Iterator[Record]:
        """Records of at most so many artifacts of each kind, spread over their names."""
        by_kind: dict[str, list[Path]] = {}
        for path in sorted((self.home / "artifacts").glob(f"*/[!.]*/{RECORD}")):
            by_kind.setdefault(path.parent.parent.name, []).append(path.parent)
        for folders in by_kind.values():
            for folder in folders[:: -(-len(folders) // most)]:
                with contextlib.suppress(OSError, ValueError):
                    yield Record.read(folder)

    def ensure(
        self,
        step: Step,
        run: Callable[[Attempt], Mapping[str, Any]],
        execution: Mapping[str, Any],
    ) -> Outcome:
        """Returns the step's artifact, computing it if it is not there, exactly once.

        Waits while another live process computes it; otherwise as `ensure_if_free`.
        """
        while (outcome := self.ensure_if_free(step, run, execution)) is None:
            time.sleep(WAIT_SECONDS)
        return outcome

    def ensure_if_free(
        self,
        step: Step,
        run: Callable[[Attempt], Mapping[str, Any]],
        execution: Mapping[str, Any],
    ) -> Outcome | None:
        """Returns the step's artifact, computing it if it is not there and nobody computes it.

        What `run` returns becomes the record's result. On any error the attempt is removed and the
        failure noted; earlier artifacts stay.

        Returns:
          None while another live process holds the step's lease; nothing was waited for.

        Raises:
          Whatever `run` raises; LeaseLostError; OSError where the disk is full.
        """
        if record := self.record(step):
            return Outcome(record, "existing")
        lease = Lease.acquire(self.home / "leases", step.short)
        if lease is None:
            return None
        with lease:
            if lease.is_takeover:
                self._remove_attempts(step)
            if record := self.record(step):
                return Outcome(record, "existing")
            return Outcome(self._compute(step, run, lease, execution), "computed")

    def sweep(self) -> list[str]:
        """Removes what dead processes left: attempts, leases of parts, progress of finished steps.

        An attempt belongs to whoever holds its step's lease, on whichever host. A damaged artifact
        is no finished step: what has been computed again of it stays.

        Returns:
          Names of the removed attempts.
        """
        swept, leases = [], self.home / "leases"
        with locked(leases):
            for folder in sorted((self.home / "artifacts").glob(f"*/{ATTEMPT}*")):
                if not is_held(leases, folder.name.removeprefix(ATTEMPT).split("-")[0]):
                    remove(folder)
                    swept.append(folder.name)
            there, of_parts = self.listing().ids, set(leases.glob(PART_LEASES))

            def is_over(short: str) -> bool:
                return short in there and not is_held(leases, short) and self.has_finished(short)

            for folder in sorted((self.home / "progress").glob("*")):
                if is_over(folder.name):
                    remove(folder)
            # Of a step that another host has done after it failed here.
            for short in filter(is_over, self.failures.all()):
                self.failures.forget(short)
            for lease in sorted(leases.glob("*.json")):
                of_part = lease in of_parts and not is_held(leases, lease.stem)
                if of_part or is_over(lease.stem):
                    remove(lease)
        self._sweep_unfinished_files()
        return swept

    def _sweep_unfinished_files(self) -> None:
        """Remove files that were being written when their writers were killed."""
        for place in ("", *_WRITTEN_ASIDE):
            for left in self.home.glob(f"{place}/.*" if place else ".*"):
                with contextlib.suppress(OSError):  # another process may remove it first
                    is_old = time.time() - left.lstat().st_mtime > ABANDONED_SECONDS
                    if is_old and _UNFINISHED.fullmatch(left.name):
                        remove(left)

    def _remove_attempts(self, step: Step) -> None:
        """Removes what dead owners of the step's lease left unfinished."""
        for folder in self.path(step).parent.glob(f"{ATTEMPT}{step.short}-*"):
            remove(folder)

    def _compute(
        self,
        step: Step,
        run: Callable[[Attempt], Mapping[str, Any]],
        lease: Lease,
        execution: Mapping[str, Any],
    ) -> Record:
        final = self.path(step)
        attempt = final.parent / f"{ATTEMPT}{step.short}-{uuid.uuid4().hex[:8]}"
        handed = Attempt(step, attempt, self.home / "progress" / step.short)
        started, clock = _now(), time.monotonic()
        failed = self.failures.of(step)
        try:
            if not handed.progress.is_dir():
                remove(handed.progress)  # no folder: what it was is lost
            attempt.mkdir(parents=True)
            with self.file_facts.in_use():  # a step may ask for the digest of data that it reads
                result = run(handed)
            lease.require()
            record = Record(
                kind=step.kind,
                name=step.name,
                fingerprint=step.fingerprint,
                spec=dict(step.spec),
                parents=dict(step.parents),
                lineage=dict(step.lineage),
                axes=dict(step.axes),
                files=_seal(attempt, handed.digests),
                result=dict(result),
                environment=environment(),
                execution=dict(execution),
                started_at=started,
                finished_at=_now(),
                seconds=round(time.monotonic() - clock + handed.seconds_elsewhere, 3),
                attempts=(failed["attempts"] if failed else 0) + 1,
                plugins=dict(handed.plugins),
            )
            record.write(attempt)
            sync(attempt)
            lease.require()
            if os.path.lexists(final):  # damaged: `record` refused it, so it must not be served
                final.rename(final.parent / f"{ATTEMPT}damaged-{uuid.uuid4().hex[:8]}")
            attempt.rename(final)
            sync(final.parent)
        except BaseException as error:
            shutil.rmtree(attempt, ignore_errors=True)
            if isinstance(error, Exception):  # an interrupt by the user is no failure
                with contextlib.suppress(OSError):  # a full disk must not hide the first error
                    self.failures.add(step, error, execution)
            raise
        self.failures.forget(step.short)
        shutil.rmtree(handed.progress, ignore_errors=True)
        return record

    def _intact(self, path: Path, entry: FileEntry) -> bool:
        try:
            if path.stat().st_size != entry.bytes:
                return False
            return self.file_facts.sha256(path) == entry.sha256
        except OSError:
            return False


def _unwritable(home: Path, got: str) -> SpecError:
    return SpecError(
        f"LCE_HOME {home}",
        got,
        "a folder that can be created and written to",
        "set LCE_HOME to a writable folder",
    )


def _seal(folder: Path, known: Mapping[str, str]) -> dict[str, FileEntry]:
    follow_folder(folder)
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            sync(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())
            name = path.relative_to(folder).as_posix()
            sha256 = known.get(name) or sha256_file(path)
            files[name] = FileEntry(bytes=path.stat().st_size, sha256=sha256)
    if not files:
        raise StoreError(
            folder,
            "no file left by the step",
            "an artifact of at least one file",
            "let the step write its result into attempt.out",
        )
    return files


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
