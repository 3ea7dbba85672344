"""Steps, the computations of a study's plan: tokenising, packing rows, training, evaluating.

A step has a kind with a version, a spec (all its settings) and parents (the steps whose results it
reads). The sha256 of these is the step's fingerprint. The spec is JSON, so that code that only
reads the store needs no plug-ins; `lce_core.study.step_kinds` parses it. The step's name is for
display only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from lce_core.errors import SpecError
from lce_core.store.identity import ID_DIGITS, fingerprint

MAX_NAME_BYTES = 220
"""Maximum bytes of a step's name. The name of the artifact's folder consists of this name and the
step's id, and file systems limit it to 255 bytes."""


class Spec(Protocol):
    """Interface of a step's spec: all settings that determine the step's result, except parents."""

    @property
    def kind(self) -> str:
        """Step kind, such as "cell"; also the name of the store's folder for such artifacts."""

    @property
    def version(self) -> int:
        """Version of the step kind, part of the fingerprint.

        Developers increase it when a change of the kind's code, or of a default in study files,
        changes results. Plug-ins have their own VERSION.
        """

    def identity(self) -> dict[str, Any]:
        """Return the JSON values that enter the fingerprint."""


@dataclass(frozen=True)
class Step:
    """A computation of a study's plan, whose result is stored once under its fingerprint."""

    kind: str
    name: str
    """Readable part of the artifact's folder name."""
    spec: Mapping[str, Any]
    """The output of `Spec.identity`."""
    parents: Mapping[str, str]
    """Fingerprints of the parent steps, by role such as "rows" or "checkpoint"."""
    lineage: Mapping[str, Any]
    """The spec with the parents' lineages nested in it, by role. The differences between the
    lineages of two steps are the settings that changed."""
    fingerprint: str
    axes: Mapping[str, Any] = field(default_factory=dict)
    """Method, seed, length and similar values, for display and lookup. Not part of the
    fingerprint."""

    @property
    def folder(self) -> str:
        """Path of the artifact below the store's `artifacts` folder."""
        return f"{self.kind}/{self.name}-{self.id}"

    @property
    def id(self) -> str:
        """First `ID_DIGITS` hex digits of the fingerprint, used in folder names and SQL views."""
        return self.fingerprint[:ID_DIGITS]

    def to_json(self) -> dict[str, Any]:
        """Return the step as JSON; `Step(**payload)` restores it."""
        return {key: getattr(self, key) for key in self.__dataclass_fields__}


def make_step(
    spec: Spec,
    name: str,
    parents: Mapping[str, Step],
    axes: Mapping[str, Any] | None = None,
) -> Step:
    """Build a step and compute its fingerprint and lineage.

    Args:
      spec: The step's settings.
      name: Readable name, used in the artifact's folder name.
      parents: Steps whose results this step reads, by role such as "rows" or "checkpoint".
      axes: See `Step.axes`.

    Raises:
      SpecError: if the spec has values that JSON cannot represent, or the name is too long.
    """
    if len(name.encode()) > MAX_NAME_BYTES:
        raise SpecError(
            f"{spec.kind} {name[:60]}...",
            f"a name of {len(name.encode())} bytes",
            f"at most {MAX_NAME_BYTES} bytes, because a folder is named after it",
            "shorten the labels of the base model and the method, or the name of the task",
        )
    kind, values = spec.kind, spec.identity()
    fingerprints = {role: parent.fingerprint for role, parent in parents.items()}
    identity = {"kind": kind, "version": spec.version, "spec": values, "parents": fingerprints}
    lineage = {**values, **{role: parent.lineage for role, parent in parents.items()}}
    return Step(kind, name, values, fingerprints, lineage, fingerprint(identity, kind), axes or {})


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the fields in which two lineages differ, as "path: old -> new", least nested first.

    "default" stands for a value that a lineage lacks.
    """
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
