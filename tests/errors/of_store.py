"""Provocations of hub, devices, store and runners."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from lce_core import devices
from lce_core.access import server_secret
from lce_core.benchmarks import CellResult, Score
from lce_core.execution import Execution
from lce_core.hub import fetch, is_address
from lce_core.runners import Runner, _require_finite
from lce_core.store import file_system
from lce_core.store.artifacts import Store
from lce_core.store.identity import canonical_json
from lce_core.store.lease import Lease
from lce_core.store.plain_text import require_text
from lce_core.store.set_aside import set_aside
from lce_core.store.steps import Step
from lce_core.store.unforeseen import explained
from tests.support.errors.provocations import Place, Table
from tests.support.free_steps import free_step

PROVOCATIONS = Table()
provokes = PROVOCATIONS


@provokes("lce_core/hub.py", "hub:OWNER/NAME@COMMIT")
def _(_: Place) -> None:
    is_address(Path("hub:somebody/something"))


@provokes("lce_core/hub.py", "neither in the hub cache")
def _(_: Place) -> None:
    fetch("nobody/nothing", "0" * 40, ["*"], ["*"], "dataset")


@provokes("lce_core/devices.py", "torch sees no CUDA device")
def _(place: Place) -> None:
    place.patch.setattr(devices, "count_accelerators", lambda: 0)
    devices.resolve_device("cuda")


@provokes("lce_core/access.py", "nobody else can read")
def _(place: Place) -> None:
    server_secret(place.folder, "mlflow")
    (place.folder / "services" / "secret").chmod(0o644)
    server_secret(place.folder, "mlflow")


def step() -> Step:
    return free_step("rows", "toy", {"tokens": 1}, {})


@provokes("lce_core/store/identity.py", "a finite number")
def _(_: Place) -> None:
    canonical_json({"rate": float("nan")}, "my.yaml:")


@provokes("lce_core/store/identity.py", "keys that are strings")
def _(_: Place) -> None:
    canonical_json({1: 2}, "my.yaml:")


@provokes("lce_core/store/identity.py", "which fingerprints are made of")
def _(_: Place) -> None:
    canonical_json({"when": object()}, "my.yaml:")


@provokes("lce_core/store/file_system.py", "a clock like theirs")
def _(place: Place) -> None:
    mounts = place.folder / "mounts"
    mounts.write_text("server:/home / nfs4 rw,local_lock=all 0 0\n", encoding="utf-8")
    place.patch.setattr(file_system, "_MOUNTS", mounts)
    file_system.require_fit(place.folder)


@provokes("lce_core/store/lease.py", "which took this step over")
def _(place: Place) -> None:
    lease = Lease.acquire(place.folder, "a")
    assert lease is not None
    (place.folder / "a.json").unlink()
    lease.require()


@provokes("lce_core/store/artifacts.py", "a folder that can be created")
def _(place: Place) -> None:
    (place.folder / "home").write_text("a file", encoding="utf-8")
    Store(place.folder / "home").prepare()


@provokes("lce_core/store/failures.py", "a disk that takes artifacts")
def _(place: Place) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    place.patch.setattr(Path, "write_bytes", full)
    Store(place.folder).prepare()


@provokes("lce_core/store/odd_files.py", "which makes the folder")
def _(place: Place) -> None:
    (place.folder / "leases").write_text("a file", encoding="utf-8")
    Store(place.folder).prepare()


@provokes("lce_core/store/unforeseen.py", "as lce makes it")
def _(place: Place) -> None:
    raise explained(IsADirectoryError(errno.EISDIR, "Is a directory", "x.lock"), place.folder)


@provokes("lce_core/store/unforeseen.py", "those that lce explains")
def _(place: Place) -> None:
    place.patch.setattr(tempfile, "tempdir", str(place.folder))
    raise explained(KeyError("cells"), place.folder)


@provokes("lce_core/runners.py", "no intact")
def _(place: Place) -> None:
    runner = Runner(Store(place.folder), Execution(home=place.folder), print)
    child = free_step("cell", "toy", {}, {"held_out": step()})
    runner._parent(child, "held_out")


@provokes("lce_core/runners.py", "finite scores")
def _(_: Place) -> None:
    score = Score("perplexity", float("inf"), None, None, 1, False)
    _require_finite(CellResult((score,)), step())


@provokes("lce_core/store/set_aside.py", "a folder in which it can be renamed")
def _(place: Place) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    place.patch.setattr(Path, "rename", refuse)
    set_aside(place.folder / "mlflow.db", "a folder")


@provokes("lce_core/store/plain_text.py", "halves of surrogate pairs")
def _(_: Place) -> None:
    require_text({"hypothesis": "a \ud800"}, "my.yaml:")
