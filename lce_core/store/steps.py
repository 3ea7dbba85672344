"""Steps, the units of identity: a kind, a spec, parents, and the fingerprint of these three.

A step carries its spec as JSON, the form in which it travels to workers and lies in records, so
that whoever only reads the store needs no plug-in. `lce_core.study.step_kinds` has the typed specs.
The name is for people and takes no part in the identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from lce_core.errors import SpecError
from lce_core.store.identity import SHORT, fingerprint

MAX_NAME_BYTES = 220
"""With the id behind it, a name stays within the 255 bytes that file systems take."""


class Spec(Protocol):
    """What a step depends on, besides its parents."""

    @property
    def kind(self) -> str:
        """The kind of step, and the folder of its artifacts."""

    @property
    def version(self) -> int:
        """Raised when the kind's code, or a default of the study file, changes its numbers.

        Plug-ins have a VERSION of their own.
        """

    def identity(self) -> dict[str, Any]:
        """JSON values: what differs here differs in the fingerprint."""


@dataclass(frozen=True)
class Step:
    """One thing to compute exactly once."""

    kind: str
    name: str
    """Readable part of the artifact's folder name."""
    spec: Mapping[str, Any]
    """`Spec.identity` of what the step depends on, besides its parents."""
    parents: Mapping[str, str]
    """Fingerprints of the steps before it, by role."""
    lineage: Mapping[str, Any]
    """The spec with the parents' lineages nested by role: what a rerun's reason is read from."""
    fingerprint: str
    axes: Mapping[str, Any] = field(default_factory=dict)
    """Where the step stands in the study (method, seed, length, ...); not identity."""

    @property
    def folder(self) -> str:
        """Path of the artifact below the store's `artifacts` folder."""
        return f"{self.kind}/{self.name}-{self.short}"

    @property
    def short(self) -> str:
        """First hex digits of the fingerprint, as used in names and views."""
        return self.fingerprint[:SHORT]

    def to_json(self) -> dict[str, Any]:
        """JSON form; `Step(**payload)` is its inverse."""
        return {key: getattr(self, key) for key in self.__dataclass_fields__}


def make_step(
    spec: Spec,
    name: str,
    parents: Mapping[str, Step],
    axes: Mapping[str, Any] | None = None,
) -> Step:
    """A step with its fingerprint.

    Raises:
      SpecError: the spec holds something without a canonical JSON form, or the name is too long.
    """
    if len(name.encode()) > MAX_NAME_BYTES:
        raise SpecError(
            f"{spec.kind} {name[:60]}...",
            f"a name of {len(name.encode())} bytes",
            f"at most {MAX_NAME_BYTES} bytes: a folder is named after it",
            "shorten the labels of the base model and the method, or the name of the task",
        )
    kind, values = spec.kind, spec.identity()
    prints = {role: parent.fingerprint for role, parent in parents.items()}
    identity = {"kind": kind, "version": spec.version, "spec": values, "parents": prints}
    lineage = {**values, **{role: parent.lineage for role, parent in parents.items()}}
    return Step(kind, name, values, prints, lineage, fingerprint(identity, kind), axes or {})


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Fields in which two lineages differ, as "place: old -> new", shallowest first."""
    before, after = _flat(old), _flat(new)
    changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    changed.sort(key=lambda key: (key.count("."), key))
    return [
        f"{key}: {before.get(key, 'default')} -> {after.get(key, 'default')}" for key in changed
    ]


def _flat(value: object, place: str = "") -> dict[str, object]:
    if isinstance(value, Mapping):
        found: dict[str, object] = {}
        for key, item in value.items():
            found.update(_flat(item, f"{place}.{key}" if place else str(key)))
        return found
    return {place: list(value) if isinstance(value, tuple) else value}
