"""Read and write home/studies/<study>/: plan, registered expectations, looks, study file, lock.

plan.json is the last plan (`StudyPlan.to_json`).

earlier.json lists the ids of steps that only earlier plans contain and whose artifacts are still in
the store, so that `lce plan` can explain which steps replaced them. `lce gc` keeps these artifacts
only if input data of the last plan was missing. Its key `cells` has the results of earlier plans.

expectations.json lists each version of a study's hypothesis, expectations and design, with the time
and the number of results at which a run first saw it. The last version without results counts;
later ones are amendments.

looks.json lists the looks of a study with `looks`: time, look, version of the expectations, and the
outcome of each comparison. Only looks at the plan's own version count.
"""

import contextlib
import itertools
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, ValidationError

from lce_core.errors import SpecError
from lce_core.store.identity import ID_DIGITS, fingerprint
from lce_core.store.odd_files import (
    lone_surrogates,
    make_folder,
    read_file,
    read_mapping,
    writable,
    write_file,
)
from lce_core.store.records import write_json
from lce_core.store.steps import Listing

PLAN = "plan.json"
EARLIER = "earlier.json"
EXPECTATIONS = "expectations.json"
LOOKS = "looks.json"
LOCK = "study.lock"
_DAMAGED = "expectations.damaged.json"
_SOURCE = "source.json"
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError)


class _Document(BaseModel):
    """Keys that a file must have. Readers get the file's own mapping, with all other keys."""

    model_config = ConfigDict(strict=True, extra="ignore")


class Tested(_Document):
    """Keys of a comparison that identify it: the versions and looks of a study have them too."""

    base_model: str
    expected: str
    benchmark: str
    method: str | None
    other_method: str | None
    frozen: bool | None
    other_frozen: bool | None
    eval_length: int
    margin: float | None


class _Comparison(Tested):
    text: str
    entry: int | None


class _Outcome(Tested):
    outcome: str
    look: int
    num_seeds: int
    level: float
    p_adjusted: float


class _Cell(_Document):
    base_model: str
    method: str
    method_name: str
    benchmark: str
    kind: str
    task: str
    cell: str | None
    folder: str | None
    checkpoint: str | None
    choice: str | None
    unavailable: str | None
    profile: str | None
    frozen: bool
    exact_attention: bool
    waits_for_data: bool
    seed: int
    eval_length: int
    target_context: int
    train_length: int | None
    train_tokens: int | None
    train_flops: float | None
    learning_rate: float | None
    blocked_by: list[str]


class _Training(_Document):
    fingerprint: str
    checkpoint: str
    folder: str


class _Plan(_Document):
    study: str
    hypothesis: str | None
    expects: list[_Comparison]
    target_context: int
    base_contexts: dict[str, int | None]
    cells: list[_Cell]
    steps: list[str]
    kinds: dict[str, str]
    trainings: list[_Training]
    choices: list[Any]
    plugins: list[Any]
    arguments: list[str] = []
    looks: list[int] = []


class _Registration(_Document):
    at: str
    sha256: str
    results_before: int
    hypothesis: str | None
    expects: list[_Comparison]


class _Look(_Document):
    at: str
    sha256: str
    look: int
    seeds: int
    comparisons: list[_Outcome]


class StudyFolders:
    """The folders home/studies/<study>/ of all studies that have been planned in one home."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "studies"
        self._artifacts = home / "artifacts"

    def save_plan(self, study: str, plan: Mapping[str, Any], source: str) -> None:
        """Save a study's plan, its file's path and new hypotheses or expectations."""
        folder, held = self._make_folder(study), Listing(self._artifacts).ids
        register(folder, plan, held)
        _replace_plan(folder, plan, held)
        write_json(folder / _SOURCE, {"file": source})

    def keep_lock(self, study: str, text: str) -> None:
        """Save the text of a study.lock, so that `lce gc` keeps the artifacts that it names."""
        write_file(self._make_folder(study) / LOCK, text.encode())

    def source(self, study: str) -> str | None:
        """Return the path of the last planned study file; None if unknown."""
        try:
            return str(read_mapping(self._folder / study / _SOURCE)["file"])
        except (OSError, ValueError, KeyError):
            return None

    def plan(self, study: str) -> dict[str, Any] | None:
        path = self._folder / study / PLAN
        return _plan(path) if path.exists() else None

    def arguments(self, study: str) -> list[str]:
        try:
            return list(read_plan(self._folder / study / PLAN).get("arguments", []))
        except (OSError, ValueError):
            return []

    def plans(self) -> list[dict[str, Any]]:
        """Return the last plans of all studies, sorted by study name, for display.

        Unreadable plans are skipped and lone surrogates replaced, with a line on standard error, so
        that one broken study does not hide the others.
        """
        plans = []
        for path in sorted(self._folder.glob(f"*/{PLAN}")):
            try:
                plans.append(_plan(path, warn=True))
            except (OSError, ValueError) as error:
                what = f"{type(error).__name__}: {error}".splitlines()[0]
                sys.stderr.write(f"lce: {path} is not a plan ({what}); its study is not shown\n")
        return plans

    def registrations(self) -> dict[str, list[dict[str, Any]]]:
        found = {}
        for file in sorted(self._folder.glob(f"*/{EXPECTATIONS}")):
            study, versions = file.parent.name, registrations(file.parent)
            found[study] = writable([one for one in versions if one.get("study", study) == study])
        return found

    def looks(self, plan: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the looks that were recorded for the expectations of this plan."""
        if "looks" not in plan:
            return []
        _, digest = _registered(plan)
        found = _all_looks(self._folder / plan["study"])
        return [one for one in found if one["sha256"] == digest]

    def latest_looks(self) -> dict[str, list[dict[str, Any]]]:
        found = {}
        for file in sorted(self._folder.glob(f"*/{LOOKS}")):
            digests = [version["sha256"] for version in registrations(file.parent)]
            own = [one for one in _all_looks(file.parent) if one["sha256"] in digests[-1:]]
            found[file.parent.name] = writable(own)
        return found

    def has_other_looks(self, plan: Mapping[str, Any]) -> bool:
        return bool(_all_looks(self._folder / plan["study"])) and not self.looks(plan)

    def record_look(
        self, plan: Mapping[str, Any], look: int, comparisons: Iterable[Mapping[str, Any]]
    ) -> None:
        """Append a look with the outcome of each comparison, unless it is there.

        Several hosts may test the same look; the first outcomes are final.
        """
        folder, digest = self._make_folder(plan["study"]), _registered(plan)[1]
        new = {"at": _now(), "sha256": digest, "look": look, "seeds": plan["looks"][look - 1]}
        names = (*_Outcome.model_fields, "metric")
        kept = [{name: one[name] for name in names if name in one} for one in comparisons]
        with FileLock(folder / ".looks.lock"):
            found = _all_looks(folder)
            if not any((one["sha256"], one["look"]) == (digest, look) for one in found):
                write_json(folder / LOOKS, {"looks": [*found, {**new, "comparisons": kept}]})

    def _make_folder(self, study: str) -> Path:
        return make_folder(self._folder / study)


def read_plan(file: Path) -> dict[str, Any]:
    """Read a plan.json; ValueError names the first key that is missing or wrong."""
    plan = read_mapping(file)
    try:
        _Plan.model_validate(plan)
    except ValidationError as error:
        raise ValueError(first_fault(error)) from None
    return plan


def first_fault(error: ValidationError) -> str:
    """Return place and message of the first fault, such as "cells.0.task: Field required"."""
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else first["msg"]


def register(folder: Path, plan: Mapping[str, Any], held: Collection[str]) -> None:
    """Append a plan's hypothesis and expectations, if new; `held` are ids of stored steps."""
    found = registrations(folder)
    is_damaged = not found and (folder / EXPECTATIONS).exists()
    if is_damaged:
        # Results without a readable registration: all expectations are amendments.
        (folder / EXPECTATIONS).replace(folder / _DAMAGED)
    others = {one["study"] for one in found if one.get("study") not in (None, plan["study"])}
    if others:
        raise SpecError(
            str(folder / EXPECTATIONS),
            f"the registration of the study {', '.join(sorted(others))}",
            f"that of {plan['study']}",
            "move the file away; what is registered after results counts as amended",
        )
    content, digest = _registered(plan)
    design = plan.get("design")
    if found and (found[-1]["sha256"], found[-1].get("design")) == (digest, design):
        return
    results = _cells(plan).intersection(held)
    # Cells that other studies had computed before the first version, such as the base model's.
    shared = set(found[0].get("shared", ())) if found else set() if is_damaged else results
    if not _show_an_expectation(plan, held):
        results = results - shared
    results |= _cells_before(folder).intersection(held) - shared
    new = {"at": _now(), "sha256": digest, "results_before": len(results), **content}
    new |= {"study": plan["study"], **({"design": design} if design else {})}
    new |= {"shared": sorted(shared)} if shared else {}
    write_json(folder / EXPECTATIONS, {"registrations": [*found, new]})


def _show_an_expectation(plan: Mapping[str, Any], held: Collection[str]) -> bool:
    """Return True if results could tell the outcome of one of a plan's comparisons.

    They can if both of its methods, or two methods of a ranking, have results at its benchmark and
    length. Without comparisons any result counts.
    """
    done: dict[tuple[str, str, int], set[tuple[str, bool]]] = {}
    for cell in plan["cells"]:
        if cell["cell"] in held:
            place = cell["base_model"], cell["benchmark"], cell["eval_length"]
            done.setdefault(place, set()).add((cell["method"], cell["frozen"]))
    for one in plan["expects"]:
        methods = done.get((one["base_model"], one["benchmark"], one["eval_length"]), set())
        if one["method"] is None and len(methods) > 1:
            return True
        pair = (one["method"], one["frozen"]), (one["other_method"], one["other_frozen"])
        if methods.issuperset(pair):
            return True
    return not plan["expects"] and bool(done)


def _registered(plan: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    content = {key: plan[key] for key in ("hypothesis", "expects", "looks") if key in plan}
    return content, fingerprint(content)


def amendments(versions: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield each change after the first result: the version that made it, and its description."""
    for before, after in itertools.pairwise(versions):
        if not after["results_before"]:
            continue
        for words, old, new in (
            ("expectation withdrawn", before, after),
            ("expectation added", after, before),
        ):
            kept = {key_of(one) for one in _of_entries(new)}
            texts = {one["text"] for one in _of_entries(new)}
            changes = (
                # If comparisons with the same text are kept, the length says which one is meant.
                words
                + (f" at {one['eval_length']:,} tokens" if one["text"] in texts else "")
                + f": {one['text']}"
                for one in _of_entries(old)
                if key_of(one) not in kept
            )
            yield from ((after, change) for change in dict.fromkeys(changes))
        if not (old_design := before.get("design")) or not (new_design := after.get("design")):
            continue
        for part, is_now in new_design.items():
            was = old_design.get(part, is_now)
            yield from ((after, f"{part} {one} dropped") for one in was if one not in is_now)
            yield from ((after, f"{part} {one} added") for one in is_now if one not in was)


def key_of(comparison: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return all that identifies a comparison among those of a study's entries."""
    among = comparison.get("among") or ()
    return *(comparison.get(name) for name in (*Tested.model_fields, "metric")), *among


def _of_entries(version: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one for one in version["expects"] if one["entry"] is not None]


def registrations(folder: Path) -> list[dict[str, Any]]:
    return _entries(folder / EXPECTATIONS, "registrations", _Registration)


def _all_looks(folder: Path) -> list[dict[str, Any]]:
    return _entries(folder / LOOKS, "looks", _Look)


def _entries(file: Path, key: str, document: type[_Document]) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = read_mapping(file)[key]
        for one in found:
            document.model_validate(one)
    except UNREADABLE:
        return []
    return found


def planned_ids(plan: Mapping[str, Any]) -> Iterator[str]:
    yield from (step_id[:ID_DIGITS] for step_id in plan["steps"])


def ids_of_study(folder: Path) -> set[str]:
    return _ids_in(folder / PLAN, planned_ids) | _ids_in(folder / EARLIER, lambda ids: ids["steps"])


def _cells(plan: Mapping[str, Any]) -> set[str]:
    return {cell["cell"] for cell in plan["cells"]}


def _cells_before(folder: Path) -> set[str]:
    return _ids_in(folder / PLAN, _cells) | _ids_in(folder / EARLIER, lambda ids: ids["cells"])


def _replace_plan(folder: Path, plan: Mapping[str, Any], held: Collection[str]) -> None:
    """Write plan.json, and keep the replaced plan's ids that are in `held` in earlier.json."""
    earlier = ids_of_study(folder).intersection(held)
    with contextlib.suppress(*UNREADABLE):
        earlier.difference_update(planned_ids(plan))
    if earlier or (folder / EARLIER).exists():
        # Write earlier.json first. If the process is killed before it writes the plan, earlier.json
        # repeats ids of the old plan, which is harmless.
        cells = _cells_before(folder).intersection(held)
        write_json(folder / EARLIER, {"steps": sorted(earlier), "cells": sorted(cells)})
    write_json(folder / PLAN, plan)


def _ids_in(file: Path, read: Callable[[Any], Iterable[str]]) -> set[str]:
    try:
        return set(read(read_mapping(file)))
    except UNREADABLE:
        return set()


def _plan(path: Path, *, warn: bool = False) -> dict[str, Any]:
    plan = read_plan(path)
    if not (places := lone_surrogates(read_file(path), plan)):
        return plan
    if warn:
        more = f" and {len(places) - 1} more places" if len(places) > 1 else ""
        what = "half of a surrogate pair, which UTF-8 cannot encode; lce shows U+FFFD instead"
        sys.stderr.write(f"lce: {path}: {places[0]}{more}: {what}\n")
    clean: dict[str, Any] = writable(plan)
    return clean


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
