"""Steps, the computations of a study's plan: tokenising, packing rows, training, evaluating.

A step has a kind with a version, a spec (all its settings) and parents (the steps whose results it
reads). The sha256 of these is the step's fingerprint. The spec is JSON, so that code that only
reads the store needs no plug-ins; `lce_core.study.step_kinds` parses it.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lce_core.errors import SpecError
from lce_core.store.identity import ID_DIGITS, fingerprint
from lce_core.store.odd_files import NOT_A_FILE

MAX_NAME_BYTES = 220
"""Limit of a name: folder names contain it and the id; file systems limit them to 255 bytes."""


@dataclass(frozen=True)
class Step:
    """A computation of a study's plan, whose result is stored once under its fingerprint."""

    kind: str
    """Such as "cell"; also the name of the store's folder."""
    name: str
    """Display name, part of the artifact's folder name."""
    spec: Mapping[str, Any]
    """The settings, as JSON (`StepSpec.identity`)."""
    parents: Mapping[str, str]
    """Fingerprints by role such as "rows" or "checkpoint"."""
    lineage: Mapping[str, Any]
    """The spec with the parents' lineages nested in it, by role; it shows settings that changed."""
    fingerprint: str
    axes: Mapping[str, Any] = field(default_factory=dict)
    """Method, seed, length and similar values, for display and lookup, not in the fingerprint."""

    @property
    def folder(self) -> str:
        """Path below the store's `artifacts` folder."""
        return f"{self.kind}/{self.name}-{self.id}"

    @property
    def id(self) -> str:
        return self.fingerprint[:ID_DIGITS]

    def to_json(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in self.__dataclass_fields__}


def make_step(
    kind: str,
    version: int,
    spec: Mapping[str, Any],
    name: str,
    parents: Mapping[str, Step],
    axes: Mapping[str, Any] | None = None,
) -> Step:
    """Build a step, with its fingerprint and lineage.

    `version` is raised when a change of the kind's code or of a default changes results.
    """
    if len(name.encode()) > MAX_NAME_BYTES:
        raise SpecError(
            f"{kind} {name[:60]}...",
            f"a name of {len(name.encode())} bytes",
            f"at most {MAX_NAME_BYTES} bytes, because a folder is named after it",
            "shorten the labels of the base model and the method, or the name of the task",
        )
    fingerprints = {role: parent.fingerprint for role, parent in parents.items()}
    identity = {"kind": kind, "version": version, "spec": spec, "parents": fingerprints}
    lineage = {**spec, **{role: parent.lineage for role, parent in parents.items()}}
    return Step(kind, name, spec, fingerprints, lineage, fingerprint(identity, kind), axes or {})


def closure(starts: Iterable[str], inputs_of: Callable[[str], Iterable[str]]) -> set[str]:
    """Return the starts, their inputs, the inputs of these, and so on."""
    found: set[str] = set()
    waiting = list(starts)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(inputs_of(name))
    return found


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the fields in which two lineages differ, as "path: old -> new", least nested first.

    "default" stands for a missing value.
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


class Listing:
    """A snapshot of the artifact folders by step kind and id."""

    def __init__(self, artifacts: Path) -> None:
        self._found: dict[tuple[str, str], Path] = {}
        for kind in visible_names(artifacts):
            for name in visible_names(artifacts / kind):
                self._found.setdefault((kind, name[-ID_DIGITS:]), artifacts / kind / name)

    @property
    def ids(self) -> set[str]:
        return {step_id for _, step_id in self._found}

    def find(self, fingerprint: str, kind: str) -> Path | None:
        return self._found.get((kind, fingerprint[:ID_DIGITS]))


def visible_names(folder: Path) -> list[str]:
    """Return a folder's names, without those of unfinished attempts; none if it is missing."""
    try:
        with os.scandir(folder) as found:
            return [entry.name for entry in found if not entry.name.startswith(".")]
    except OSError as error:
        if error.errno in NOT_A_FILE:
            return []
        raise
