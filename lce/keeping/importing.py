"""`lce import`: add the results in parcels, which other machines computed, to this home."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from flows.settings import mlflow_server
from flows.terminal import say
from lce_core.errors import DataError, SpecError
from lce_core.store.artifacts import Store
from lce_core.store.identity import ID_DIGITS
from lce_core.store.lease import Lease
from lce_core.store.odd_files import make_folder, read_file, remove
from lce_core.store.parcels import Parcel, differing_results, fault_of, plan_digest
from lce_core.store.records import RECORD, Record
from tasks import projections

LEASE = "import"
STAGING = "importing"
"""Folder of a home in which a parcel is checked. It holds nothing that counts as an artifact."""
KEPT = "imported"
"""Folder of a home with results that differ from those of the store."""
_LONGEST_VALUE = 60

Outcome = Literal["imported", "already here", "refused", "with other results"]


def import_parcels(home: Path, paths: Sequence[Path]) -> bool:
    """Import parcels and update the catalog; return True if no result was refused or differs.

    Parcels may overlap and come in any order. A refused one does not keep the others out.
    """
    store, parcels = Store(home), [Parcel.open(path) for path in paths]
    planned = {parcel: _planned(parcel, store) for parcel in parcels}
    store.prepare()
    lease = Lease.acquire(home / "leases", LEASE)
    if lease is None:
        raise SpecError(
            f"LCE_HOME {home}",
            "a home into which another process is importing parcels",
            "one import into a home at a time",
            "wait until the other `lce import` has finished",
        )
    counts: Counter[Outcome] = Counter()
    staging = home / STAGING
    with lease:  # while it is held, `lce gc` does not start
        for parcel, ids in planned.items():
            remove(staging)  # an interrupted import may have left it
            try:
                parcel.extract(make_folder(staging))
                counts += _import(store, parcel, ids)
            except DataError as error:
                say(f"lce: {error}", err=True)
                counts["refused"] += 1
            finally:
                remove(staging)
    for study in sorted({parcel.study for parcel in parcels}):
        projections.record(home, study, mlflow_server(home))
    shown: list[Outcome] = ["imported", "already here", "refused"]
    shown += ["with other results"] if counts["with other results"] else []
    say(", ".join(f"{counts[name]:,} {name}" for name in shown))
    return not counts["refused"] + counts["with other results"]


def _planned(parcel: Parcel, store: Store) -> frozenset[str]:
    where = f"parcel {parcel.path.name}"
    try:
        plan = store.studies.plan(parcel.study)
    except (OSError, ValueError) as error:
        raise DataError(
            f"the plan of {parcel.study} in {store.home}",
            f"an unreadable plan ({error})",
            "the plan for which the parcel was computed",
            "plan the study again with `lce run`",
        ) from None
    if plan is None:
        raise SpecError(
            where,
            f"results of study {parcel.study}, which {store.home} has not planned",
            "a home with the plan for which the parcel was computed",
            "set LCE_HOME to the home in which `lce pack` packed the study",
        )
    ids = frozenset(plan["steps"])
    if plan_digest(ids) != parcel.plan:
        found = parcel.step_ids()
        raise SpecError(
            where,
            f"results of another plan of study {parcel.study}: {len(found - ids):,} of the parcel's"
            f" {len(found):,} steps are not in the plan of {store.home}, which has {len(ids):,}",
            "the plan for which the parcel was computed",
            "pack the study again with `lce pack`, or plan the study file as it was packed",
        )
    return ids


def _import(store: Store, parcel: Parcel, ids: frozenset[str]) -> Counter[Outcome]:
    staging, counts = store.home / STAGING, Counter[Outcome]()
    for folder in sorted((staging / "artifacts").glob("*/*")):
        outcome, why = _import_artifact(store, parcel, folder, ids)
        counts[outcome] += 1
        if why:
            say(f"{parcel.path.name}: {folder.parent.name} {folder.name}: {why}")
    for file in sorted((staging / "failures").glob("*.json")):
        if store.find(file.stem):
            continue
        if file.stem not in ids or not store.failures.adopt(file.stem, file):
            counts["refused"] += 1
            say(f"{parcel.path.name}: failures/{file.name}: no failure of a step in the plan")
    return counts


def _import_artifact(
    store: Store, parcel: Parcel, folder: Path, ids: frozenset[str]
) -> tuple[Outcome, str]:
    if fault := fault_of(folder, folder.parent.name):
        return "refused", fault
    record = Record.read(folder)
    if record.fingerprint[:ID_DIGITS] not in ids:
        return "refused", "it is no step of the plan"
    held = store.adopt(folder, record)
    if held is None:
        return "refused", "a run computes this step now; import the parcel again after the run"
    if held is record:
        return "imported", ""
    if not (differing := differing_results(held, record)):
        return "already here", ""
    kept = store.home / KEPT / parcel.stem / folder.parent.name / folder.name
    if not kept.exists():
        make_folder(kept.parent)
        folder.rename(kept)
    elif read_file(kept / RECORD) != read_file(folder / RECORD):
        return "refused", f"{kept} has the results of another parcel; rename the parcel"
    values = "; ".join(
        f"{name} {_short(here)} here, {_short(other)} in the parcel"
        for name, (here, other) in differing.items()
    )
    return "with other results", f"{values}; kept in {kept.relative_to(store.home)}"


def _short(value: object) -> str:
    return textwrap.shorten(str(value), _LONGEST_VALUE, placeholder=" ...")
