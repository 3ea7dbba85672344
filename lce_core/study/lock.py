"""Read and write `study.lock`: the id of every step of a study, and the settings behind each id.

Users commit the lock to version control; `lce lock --check` reports ids that changed. The lock is
JSON with one sorted line per entry, so that a diff is readable. Mappings that many steps share are
stored once under `parts`, and steps refer to them by name and digest. Steps contain shortened
digests of their input data; the full digests are in `data`.

`roots_of` finds the artifacts that `lce gc` must keep. A plan without some input data has no ids
for the cells that read it. For such a cell, every artifact of the same model, method, seed,
benchmark, task and length is kept, and all artifacts that earlier plans of the study name, because
the cell's artifact may have been computed under another label or seed.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from lce_core.errors import DataError, SpecError
from lce_core.store.artifacts import Store
from lce_core.store.garbage import Roots
from lce_core.store.identity import ID_DIGITS, fingerprint
from lce_core.store.odd_files import open_file, read_mapping
from lce_core.store.steps import Step
from lce_core.store.study_folders import LOCK, UNREADABLE, first_fault, ids_of_study, planned_ids
from lce_core.study.plan import StudyPlan
from lce_core.study.step_kinds import CellSpec, kind_named

FORMAT = 1
MAX_BYTES = 1 << 28
"""Maximum file size; a lock of 250,000 cells has about 100 million characters."""
DIGESTS = ("digest", "data", "weights", "published")
"""Fields of a spec with a digest of input data or weights."""
_READERS = {"digest": "corpus", "data": "benchmark", "published": "method"}
"""Fields of a spec with the plug-in that reads a digest; `base_model` reads the other digests."""
_PART_DIGITS = 8
_REFERS = "@"


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    format: Literal[1]
    study: str
    kinds: dict[str, int]
    plugins: dict[str, int]
    data: dict[str, str]
    parts: dict[str, dict[str, Any]]
    steps: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class LockedStep:
    """A step of a study, as a lock file stores it."""

    kind: str
    name: str
    id: str
    spec: Mapping[str, Any]
    """The step's spec, with digests shortened to `ID_DIGITS`."""
    parents: Mapping[str, str]
    """Ids by role."""


@dataclass(frozen=True)
class Lock:
    """The content of a lock file."""

    study: str
    kinds: Mapping[str, int]
    steps: Mapping[str, LockedStep]
    data: Mapping[str, str] = field(default_factory=dict)
    """Full digests, by keys such as "data of benchmark ruler 1f0c2b3a4d5e"."""
    _lineages: dict[str, Mapping[str, Any]] = field(default_factory=dict, init=False, compare=False)

    def text(self) -> str:
        parts: dict[str, Any] = {}
        steps = {
            f"{step.kind} {step.name} {step.id}": _shared(step.spec, parts)
            | ({"parents": dict(step.parents)} if step.parents else {})
            for step in self.steps.values()
        }
        sections: dict[str, Mapping[str, Any]] = {
            "kinds": dict(self.kinds),
            "plugins": {
                f"{key.partition(' ')[0]} {part['name']}": part["version"]
                for key, part in parts.items()
                if "name" in part and "version" in part
            },
            "data": dict(self.data),
            "parts": parts,
            "steps": steps,
        }
        lines = [f'"format": {FORMAT}', f'"study": {json.dumps(self.study)}']
        lines += [f'"{name}": {_section(entries)}' for name, entries in sections.items()]
        return "{\n" + ",\n".join(lines) + "\n}\n"

    @classmethod
    def read(cls, path: Path) -> Lock:
        """Read a lock file; DataError if it is unreadable or invalid."""
        try:
            with open_file(path) as file:
                size = os.fstat(file.fileno()).st_size
                text = "" if size > MAX_BYTES else file.read().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"{path}",
                f"a lock that cannot be read ({error})",
                "a readable file that `lce lock` wrote",
                "check the path and the file's permissions, or run `lce lock STUDY` to write it"
                " again",
            ) from None
        if size > MAX_BYTES:
            expected = f"a lock of at most {MAX_BYTES:,} bytes"
            raise DataError(f"{path}", f"{size:,} bytes", expected, "divide the study into several")
        return cls.parse(text, f"{path}")

    @classmethod
    def parse(cls, text: str, where: str) -> Lock:
        """Parse the lock file `where`; DataError if invalid, for example after a merge conflict."""
        try:
            file = _File.model_validate_json(text)
            steps = [_locked(key, entry, file.parts) for key, entry in file.steps.items()]
        except (KeyError, ValueError, TypeError) as error:
            raise DataError(
                where,
                f"content that is not a lock ({_fault(error)})",
                "a file that `lce lock` wrote",
                "run `lce lock STUDY` to write it again",
            ) from None
        return cls(file.study, file.kinds, {step.id: step for step in steps}, file.data)

    def lineage(self, step_id: str) -> Mapping[str, Any]:
        """Return a step's spec, its kind's version, and its parents' lineages, nested by role."""
        if step_id not in self._lineages:
            step = self.steps[step_id]
            before = {
                role: self.lineage(parent)
                for role, parent in step.parents.items()
                if parent in self.steps
            }
            version = {f"version of kind {step.kind}": self.kinds.get(step.kind)}
            self._lineages[step_id] = {**step.spec, **version, **before}
        return self._lineages[step_id]


def lock_of(plan: StudyPlan, *, expected: bool = False) -> Lock:
    """Return the plan's lock; `expected` adds steps without data, whose ids are not final."""
    steps = {**plan.steps, **(plan.expected if expected else {})}.values()
    return Lock(
        plan.study.study,
        {kind: kind_named(kind).version for kind in sorted({step.kind for step in steps})},
        {step.id: _from_plan(step) for step in steps},
        dict(_data(steps)),
    )


def _from_plan(step: Step) -> LockedStep:
    spec = {
        name: value[:ID_DIGITS] if name in DIGESTS and value is not None else value
        for name, value in json.loads(json.dumps(dict(step.spec))).items()
    }
    parents = {role: parent[:ID_DIGITS] for role, parent in step.parents.items()}
    return LockedStep(step.kind, step.name, step.id, spec, parents)


def _data(steps: Iterable[Step]) -> Iterator[tuple[str, str]]:
    for step in steps:
        for name in DIGESTS:
            if digest := step.spec.get(name):
                reader = _READERS.get(name, "base_model")
                plugin = step.spec[reader]["name"]
                yield f"{name} of {reader} {plugin} {digest[:ID_DIGITS]}", digest


def _shared(spec: Mapping[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """Return a spec that refers to its mappings, which are added to `parts`."""
    found = {}
    for name, value in spec.items():
        if isinstance(value, Mapping):
            digest = fingerprint(value)[:_PART_DIGITS]
            reference = f"{value.get('name', name)}-{digest}"
            parts[f"{name} {reference}"] = dict(value)
            found[name] = _REFERS + reference
        else:
            found[name] = value
    return found


def _fault(error: Exception) -> str:
    if isinstance(error, ValidationError):  # its first line only counts the errors
        return first_fault(error)
    if isinstance(error, KeyError):
        return f"a step refers to {error}, which is not in `parts`"
    return str(error).splitlines()[0]


def _section(entries: Mapping[str, Any]) -> str:
    lines = (f" {json.dumps(key)}: {json.dumps(entries[key], sort_keys=True)}" for key in entries)
    return "{\n" + ",\n".join(sorted(lines)) + "\n}" if entries else "{}"


def _locked(key: str, entry: dict[str, Any], parts: Mapping[str, Any]) -> LockedStep:
    kind, _, rest = key.partition(" ")
    label, _, step_id = rest.rpartition(" ")
    parents = entry.pop("parents", {})
    spec = {
        name: parts[f"{name} {value[1:]}"] if str(value).startswith(_REFERS) else value
        for name, value in entry.items()
    }
    return LockedStep(kind, label, step_id, spec, parents)


def roots_of(store: Store, locks: Iterable[Path]) -> Roots:
    """Return the artifacts that plans, locks and further lock files name, as ids or axes."""
    plans = sorted(store.home.glob("studies/*/plan.json"))
    kept = [*sorted(store.home.glob(f"studies/*/{LOCK}")), *locks]
    if not (plans or kept):
        raise SpecError(
            f"{store.home}",
            "no plan and no lock of any study",
            "at least one plan or lock, which lists the artifacts to keep",
            "run a study first, or pass its lock file with --lock",
        )
    ids = {step_id for path in kept for step_id in Lock.read(path).steps}
    places: list[dict[str, Any]] = []
    for path in plans:
        try:
            plan = read_mapping(path)
            ids.update(planned_ids(plan))
            waiting = [one for one in plan["cells"] if not one["cell"] and one["waits_for_data"]]
            places += ({axis: cell[axis] for axis in CellSpec.place} for cell in waiting)
            if waiting:
                ids |= ids_of_study(path.parent)
        except UNREADABLE as error:
            raise DataError(
                f"{path}",
                f"content that is not a plan ({error})",
                "a readable plan",
                "run the study again, or remove the plan's folder if nobody needs its artifacts",
            ) from None
    return Roots(ids, tuple(places))


def ids_before(store: Store, study: str) -> set[str]:
    """Return the step ids in a study's last plan, earlier plans and lock; skip unreadable files."""
    folder = store.home / "studies" / study
    with contextlib.suppress(DataError):
        return ids_of_study(folder).union(Lock.read(folder / LOCK).steps)
    return ids_of_study(folder)
