"""Read and write home/studies/<study>/plan.json, and keep the ids of earlier plans.

earlier.json lists the ids of steps that only earlier plans contain and whose artifacts are still in
the store, so that `lce plan` can explain which steps replaced them. `lce gc` keeps these artifacts
only if input data of the last plan was missing.

expectations.json lists each version of a study's hypothesis, expectations and design, with the time
and the number of results at which a run first saw it. The last version without results counts;
later ones are amendments.

looks.json lists the looks of a study with `looks`: time, look, version of the expectations, and the
outcome of each comparison. Only looks at the plan's own version count.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lce_core.errors import SpecError
from lce_core.store.identity import ID_DIGITS, fingerprint
from lce_core.store.odd_files import read_mapping
from lce_core.store.records import write_json

PLAN = "plan.json"
EARLIER = "earlier.json"
EXPECTATIONS = "expectations.json"
LOOKS = "looks.json"
_DAMAGED = "expectations.damaged.json"
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError)
"""Exceptions of a missing or damaged plan.json or earlier.json."""

_TEXT_OR_NONE = (str, type(None))
_CELL = {
    **dict.fromkeys(("base_model", "method", "method_name", "benchmark", "kind", "task"), str),
    **dict.fromkeys(("cell", "folder", "checkpoint", "choice", "unavailable"), _TEXT_OR_NONE),
    **dict.fromkeys(("profile",), _TEXT_OR_NONE),
    **dict.fromkeys(("frozen", "exact_attention", "waits_for_data"), bool),
    **dict.fromkeys(("seed", "eval_length", "target_context"), int),
    **dict.fromkeys(("train_length", "train_tokens"), (int, type(None))),
    **dict.fromkeys(("learning_rate", "train_flops"), (float, int, type(None))),
    "blocked_by": list,
}
_TRAINING = dict.fromkeys(("fingerprint", "checkpoint", "folder"), str)
_COMPARISON = {
    **dict.fromkeys(("text", "base_model", "expected", "benchmark"), str),
    **dict.fromkeys(("method", "other_method"), _TEXT_OR_NONE),
    **dict.fromkeys(("frozen", "other_frozen"), (bool, type(None))),
    "eval_length": int,
    "entry": (int, type(None)),
    "margin": (float, type(None)),
}
_REGISTRATION = {
    **dict.fromkeys(("at", "sha256"), str),
    "results_before": int,
    "hypothesis": _TEXT_OR_NONE,
    "expects": list,
}
_LOOK = {"at": str, "sha256": str, "look": int, "seeds": int, "comparisons": list}
_TESTED = {
    **{name: kind for name, kind in _COMPARISON.items() if name not in ("entry", "text")},
    "outcome": str,
    **dict.fromkeys(("look", "num_seeds"), int),
    **dict.fromkeys(("level", "p_adjusted"), float),
}
_PLAN = {
    "study": str,
    "hypothesis": _TEXT_OR_NONE,
    "expects": list,
    "target_context": int,
    "base_contexts": dict,
    "cells": list,
    "steps": list,
    "kinds": dict,
    "trainings": list,
    "choices": list,
    "plugins": list,
}
"""Keys of a plan, with the types of their values; below, those of its lists' entries."""


def read_plan(file: Path) -> dict[str, Any]:
    """Read a plan.json (the output of `StudyPlan.to_json`) and check its keys.

    Raises:
      OSError: if the file cannot be read.
      ValueError: if the content is not a plan.
    """
    plan = read_mapping(file)
    _require(plan, _PLAN)
    for cell in plan["cells"]:
        _require(cell, _CELL)
    for training in plan["trainings"]:
        _require(training, _TRAINING)
    for comparison in plan["expects"]:
        _require(comparison, _COMPARISON)
    if "arguments" in plan:
        _require(plan, {"arguments": list})
        for argument in plan["arguments"]:
            _require({"arguments": argument}, {"arguments": str})
    if "looks" in plan:
        _require(plan, {"looks": list})
        for number in plan["looks"]:
            _require({"looks": number}, {"looks": int})
    return plan


def register(folder: Path, plan: Mapping[str, Any], held: Collection[str]) -> None:
    """Append a plan's hypothesis and expectations to expectations.json, if they are new.

    `held` are ids of the steps whose artifacts are in the store.
    """
    found = registrations(folder)
    if not found and (folder / EXPECTATIONS).exists():
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
    results = {cell["cell"] for cell in plan["cells"]}.intersection(held)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    new = {"at": now, "sha256": digest, "results_before": len(results), **content}
    new |= {"study": plan["study"], **({"design": design} if design else {})}
    write_json(folder / EXPECTATIONS, {"registrations": [*found, new]})


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
            texts = {one["text"] for one in new["expects"]}
            yield from (
                (after, f"{words}: {text}")
                for text in dict.fromkeys(
                    one["text"] for one in old["expects"] if one["entry"] is not None
                )
                if text not in texts
            )
        if not (old_design := before.get("design")) or not (new_design := after.get("design")):
            continue
        for part in new_design:
            was, is_now = old_design.get(part, ()), new_design[part]
            yield from ((after, f"{part} {one} dropped") for one in was if one not in is_now)
            yield from ((after, f"{part} {one} added") for one in is_now if one not in was)


def looks(folder: Path, plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    _, digest = _registered(plan)
    return [one for one in all_looks(folder) if one["sha256"] == digest]


def all_looks(folder: Path) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = read_mapping(folder / LOOKS)["looks"]
        for one in found:
            _require(one, _LOOK)
            for comparison in one["comparisons"]:
                _require(comparison, _TESTED)
    except UNREADABLE:
        return []
    return found


def record_look(
    folder: Path, plan: Mapping[str, Any], look: int, comparisons: Iterable[Mapping[str, Any]]
) -> None:
    """Append a look with the outcome of each comparison to looks.json, unless it is there.

    Several hosts may test the same look; the first outcomes are final.
    """
    _, digest = _registered(plan)
    found = all_looks(folder)
    if any((one["sha256"], one["look"]) == (digest, look) for one in found):
        return
    now = datetime.now(UTC).isoformat(timespec="seconds")
    new = {"at": now, "sha256": digest, "look": look, "seeds": plan["looks"][look - 1]}
    kept = [
        {name: one[name] for name in (*_TESTED, "metric") if name in one} for one in comparisons
    ]
    write_json(folder / LOOKS, {"looks": [*found, {**new, "comparisons": kept}]})


def registrations(folder: Path) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = read_mapping(folder / EXPECTATIONS)["registrations"]
        for one in found:
            _require(one, _REGISTRATION)
            for comparison in one["expects"]:
                _require(comparison, _COMPARISON)
    except UNREADABLE:
        return []
    return found


def _require(content: Any, types: Mapping[str, Any]) -> None:
    if not isinstance(content, dict):
        raise ValueError(f"a value of type {type(content).__name__} instead of a mapping")
    for name, kind in types.items():
        if not isinstance(content.get(name, ...), kind):
            raise ValueError(f"no valid value for the key {name!r}: {content.get(name)!r}")


def planned_ids(plan: Mapping[str, Any]) -> Iterator[str]:
    yield from (step_id[:ID_DIGITS] for step_id in plan["steps"])


def ids_of_study(folder: Path) -> set[str]:
    return _ids_in(folder / PLAN, planned_ids) | _ids_in(folder / EARLIER, lambda ids: ids["steps"])


def replace_plan(folder: Path, plan: Mapping[str, Any], held: Collection[str]) -> None:
    """Write plan.json of a study, and add the replaced plan's step ids to earlier.json.

    earlier.json keeps only ids in `held`, whose artifacts the store has.
    """
    earlier = ids_of_study(folder).intersection(held)
    with contextlib.suppress(*UNREADABLE):
        earlier.difference_update(planned_ids(plan))
    if earlier or (folder / EARLIER).exists():
        # Write earlier.json first. If the process is killed before it writes the plan, earlier.json
        # repeats ids of the old plan, which is harmless.
        write_json(folder / EARLIER, {"steps": sorted(earlier)})
    write_json(folder / PLAN, plan)


def _ids_in(file: Path, read: Callable[[Any], Iterable[str]]) -> set[str]:
    try:
        return set(read(read_mapping(file)))
    except UNREADABLE:
        return set()
