"""The store: a folder with one artifact (a folder of files and a record) per finished step.

Layout below the home; <id> is the first 12 hex digits of the step's fingerprint:

    artifacts/<kind>/<name>-<id>/   an artifact; record.json is written last
    artifacts/<kind>/.attempt-...   an unfinished artifact, removed once its lease is stale
    progress/<id>/                  checkpoints of a training run, parts of shards or a long cell
    failures/<id>.json              last error and number of failed attempts of a step
    leases/                         leases of steps and parts being computed
    studies/<study>/                the last plan, its study file's path, lock, earlier ids
    prompts/<fingerprint>.safetensors   prompts that are slow to build
    importing/                      a parcel that `lce import` is checking
    imported/<parcel>/<kind>/...    results of parcels that differ from the store's
    verifications/                  comparisons of recomputed cells
    models/<name>/                  base models downloaded by `lce fetch`
    cache/files                     cached facts about files, such as digests
    accepted_plugins.json           code digests that a user declared equivalent

A step is done if its artifact has a record and every file has the size and sha256 that the record
states. Only `Store.ensure` and `Store.adopt` add artifacts. `ensure` checks the record, acquires
the lease, checks the record again, computes in an attempt folder, calls fsync and renames the
folder.
"""

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from lce_core.errors import SpecError
from lce_core.store.failures import FailureNotes, classify, disk_full
from lce_core.store.file_facts import FileFacts
from lce_core.store.identity import ID_DIGITS, sha256_file
from lce_core.store.lease import Lease
from lce_core.store.odd_files import follow_folder, make_folder, no_folder, remove
from lce_core.store.parts import Parts
from lce_core.store.records import RECORD, FileEntry, PluginCode, Record, environment, sync
from lce_core.store.steps import Listing, Step, visible_names
from lce_core.store.study_folders import StudyFolders

ATTEMPT = ".attempt-"
_FOLDERS = ("artifacts", "progress", "failures", "leases", "studies", "prompts", "cache")


@dataclass
class Attempt:
    """One attempt to compute a step, with the folder `out` for the artifact's files.

    The next attempt continues from files in `progress`, such as checkpoints.
    """

    step: Step
    out: Path
    progress: Path
    digests: dict[str, str] = field(default_factory=dict)
    """sha256 of files in `out` by relative path, if known; the store computes the others."""
    seconds_by_others: float = 0.0
    """Seconds that others or earlier attempts spent on the step; part of `Record.seconds`."""
    plugins: dict[str, PluginCode] = field(default_factory=dict)
    """Code of the user's own plug-ins in the step's spec."""


class Store:
    """Access to the files of one home folder (LCE_HOME): artifacts, leases, plans, caches."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.file_facts = FileFacts(home)
        self.failures = FailureNotes(home)
        self.studies = StudyFolders(home)

    def prepare(self) -> None:
        for path in (self.home, *self.home.parents):
            if os.path.lexists(path) and not path.is_dir():
                raise _unwritable(self.home, f"{path}, which is not a folder")
        try:
            for name in _FOLDERS:
                make_folder(self.home / name)
            for kind in (self.home / "artifacts").iterdir():
                if not kind.is_dir():
                    raise no_folder(kind)
            # The probe's name must be unique across hosts and containers, where pids repeat.
            probe = self.home / "cache" / f".probe-{uuid.uuid4().hex}"
            probe.write_bytes(b"lce")
            probe.unlink()
        except OSError as error:
            if classify(error) == "disk_full":
                raise disk_full(self.home, error.strerror or str(error)) from None
            raise _unwritable(self.home, error.strerror or str(error)) from None

    @property
    def models(self) -> Path:
        return self.home / "models"

    @property
    def prompts(self) -> Path:
        """Cached benchmark prompts, which may be deleted at any time."""
        return self.home / "prompts"

    def parts(self, step: Step) -> Parts:
        return Parts(self.home / "progress" / step.id, self.home / "leases")

    def listing(self) -> Listing:
        return Listing(self.home / "artifacts")

    def named(self, step: Step) -> Path:
        """Return the folder of the step's kind, name and id, which may not exist."""
        return self.home / "artifacts" / step.folder

    def path(self, step: Step, listing: Listing | None = None) -> Path:
        """Return the folder of the step's artifact, or `named(step)` if there is no artifact.

        Only the fingerprint identifies an artifact: its folder has the name that the step had when
        it was first computed, perhaps in another study.
        """
        return self.artifact(step.folder, listing)

    def artifact(self, folder: str, listing: Listing | None = None) -> Path:
        named, kind = self.home / "artifacts" / folder, folder.partition("/")[0]
        if named.is_dir():
            return named
        return (listing or self).find(folder[-ID_DIGITS:], kind) or named

    def find(self, fingerprint: str, kind: str | None = None) -> Path | None:
        """Return the artifact folder with this fingerprint or id and kind, if any."""
        artifacts = self.home / "artifacts"
        for folder in visible_names(artifacts) if kind is None else (kind,):
            for name in visible_names(artifacts / folder):
                if name.endswith(f"-{fingerprint[:ID_DIGITS]}"):
                    return artifacts / folder / name
        return None

    def record(self, step: Step, listing: Listing | None = None) -> Record | None:
        """Return the step's record if its artifact is complete and undamaged, else None."""
        record = self.result(step, listing)
        if record is None or record.has_weights_elsewhere(self.path(step, listing)):
            return None
        return record

    def result(self, step: Step, listing: Listing | None = None) -> Record | None:
        """Return what `record` returns, even if the weights of a training run are elsewhere."""
        folder = self.path(step, listing)
        record = Record.find(folder)
        if record is None or record.fingerprint != step.fingerprint:
            return None
        return record if self.is_intact(folder, record) else None

    def has_finished(self, fingerprint: str) -> bool:
        """Return True if there is an undamaged artifact with this fingerprint or id.

        Without weights it does not count, because a run may be training them again.
        """
        folder = self.find(fingerprint)
        if folder is None or (record := Record.find(folder)) is None:
            return False
        return not record.has_weights_elsewhere(folder) and self.is_intact(folder, record)

    def is_intact(self, folder: Path, record: Record) -> bool:
        return record.fault_in(folder, self.file_facts.sha256) is None

    def records(self) -> Iterator[tuple[Path, Record]]:
        """Yield every artifact's folder and readable record, by path, without checking files."""
        for path in sorted((self.home / "artifacts").glob(f"*/[!.]*/{RECORD}")):
            if record := Record.find(path.parent):
                yield path.parent, record

    def sample(self, most: int) -> Iterator[Record]:
        """Yield records of up to `most` evenly spaced artifacts per kind, for the cost model."""
        by_kind: dict[str, list[Path]] = {}
        for path in sorted((self.home / "artifacts").glob(f"*/[!.]*/{RECORD}")):
            by_kind.setdefault(path.parent.parent.name, []).append(path.parent)
        for folders in by_kind.values():
            for folder in folders[:: -(-len(folders) // most)]:
                if record := Record.find(folder):
                    yield record

    def ensure(
        self, step: Step, run: Callable[[Attempt], Mapping[str, Any]], execution: Mapping[str, Any]
    ) -> Literal["existing", "computed", "held"]:
        """Compute the step unless it has an undamaged artifact or another live process computes it.

        `run` writes files into `Attempt.out` and returns `Record.result`. Its error is saved in
        `failures` and raised again. Returns "held" if another live process is computing the step.
        """
        if self.record(step):
            return "existing"
        lease = Lease.acquire(self.home / "leases", step.id)
        if lease is None:
            return "held"
        with lease:
            if lease.is_takeover:  # of a dead process, so nobody writes into its folders
                for left in self.path(step).parent.glob(f"{ATTEMPT}{step.id}-*"):
                    remove(left)
            if self.record(step):
                return "existing"
            self._compute(step, run, lease, execution)
        return "computed"

    def adopt(self, folder: Path, record: Record) -> Record | None:
        """Move an artifact that another home computed, with checked files, into this store.

        `folder` is on this store's file system. An undamaged artifact of the step stays, unless
        only `folder` has its weights. Returns the record that the store has now; None if another
        live process is computing the step.
        """
        if held := self._rival(folder, record):
            return held
        lease = Lease.acquire(self.home / "leases", record.fingerprint[:ID_DIGITS])
        if lease is None:
            return None
        with lease:
            if held := self._rival(folder, record):
                return held
            named = self.home / "artifacts" / record.kind / folder.name
            make_folder(named.parent)
            follow_folder(folder)
            for path in folder.rglob("*"):
                sync(path)
            final = self.find(record.fingerprint, record.kind) or named
            _commit(folder, final, lease)
        self.failures.forget(record.fingerprint[:ID_DIGITS])
        return record

    def _rival(self, folder: Path, record: Record) -> Record | None:
        """Return the record of the artifact that `folder` must not replace, if any."""
        there = self.find(record.fingerprint, record.kind)
        if there is None or (held := Record.find(there)) is None:
            return None
        if held.fingerprint != record.fingerprint or not self.is_intact(there, held):
            return None
        brings_weights = held.has_weights_elsewhere(there) and not record.has_weights_elsewhere(
            folder
        )
        # Weights of another training of the step would not be those of the results in this store.
        return None if brings_weights and held.files == record.files else held

    def _compute(
        self,
        step: Step,
        run: Callable[[Attempt], Mapping[str, Any]],
        lease: Lease,
        execution: Mapping[str, Any],
    ) -> None:
        final = self.path(step)
        folder = final.parent / f"{ATTEMPT}{step.id}-{uuid.uuid4().hex[:8]}"
        attempt = Attempt(step, folder, self.home / "progress" / step.id)
        started, clock = _now(), time.monotonic()
        failed = self.failures.of(step)
        try:
            if not attempt.progress.is_dir():
                remove(attempt.progress)  # a file in the folder's place holds no usable progress
            folder.mkdir(parents=True)
            with self.file_facts.in_use():  # steps compute digests of their input data
                result = run(attempt)
            lease.require()
            record = Record(
                **step.to_json(),
                files=_seal(folder, attempt.digests),
                result=dict(result),
                environment=environment(),
                execution=dict(execution),
                started_at=started,
                finished_at=_now(),
                seconds=round(time.monotonic() - clock + attempt.seconds_by_others, 3),
                attempts=(failed["attempts"] if failed else 0) + 1,
                plugins=dict(attempt.plugins),
            )
            record.write(folder)
            _commit(folder, final, lease)
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, Exception):  # KeyboardInterrupt is not a failure of the step
                with contextlib.suppress(OSError):  # a full disk must not mask the original error
                    self.failures.add(step, error, execution)
            raise
        self.failures.forget(step.id)
        shutil.rmtree(attempt.progress, ignore_errors=True)


def _unwritable(home: Path, got: str) -> SpecError:
    return SpecError(
        f"LCE_HOME {home}",
        got,
        "a folder that can be created and written to",
        "set LCE_HOME to a writable folder",
    )


def _commit(folder: Path, final: Path, lease: Lease) -> None:
    sync(folder)
    lease.require()
    if os.path.lexists(final):  # the caller found it damaged, so move it away
        final.rename(final.parent / f"{ATTEMPT}damaged-{uuid.uuid4().hex[:8]}")
    folder.rename(final)
    sync(final.parent)


def _seal(folder: Path, known: Mapping[str, str]) -> dict[str, FileEntry]:
    """Set all files' modes, call fsync, and return sizes and sha256 (from `known` if there)."""
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
    assert files, f"the step wrote no file into {folder}"
    return files


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
