"""Leave out methods of a study with `looks` for later seeds, once a look has settled them.

A comparison is settled when a look confirms or contradicts its expectation. A method is settled
when all its comparisons with one base model are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lce_core.store.study_folders import key_of as key_of
from lce_core.study.plan import PlannedCell, StudyPlan

SETTLED = ("confirmed", "contradicted", "on one training run")
_SIDES = (("method", "frozen"), ("other_method", "other_frozen"))

Variant = tuple[str, str, bool]
"""Base model, label of the method, and True if it is frozen."""
Looks = Iterable[Mapping[str, Any]]
"""Recorded looks (`StudyFolders.looks`)."""


def tested_at_looks(expects: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return a plan's comparisons that looks test: no rank agreements or default comparisons."""
    return [one for one in expects if one["entry"] is not None and one["method"] is not None]


def settled_comparisons(looks: Looks) -> dict[tuple[Any, ...], int]:
    """Return the look that settled each comparison, by `key_of`."""
    return {
        key_of(one): max(look["look"], one["look"])
        for look in looks
        for one in look["comparisons"]
        if one["outcome"] in SETTLED
    }


def settled_methods(expects: Iterable[Mapping[str, Any]], looks: Looks) -> dict[Variant, int]:
    """Return the look that settled the last comparison of each settled method."""
    settled = settled_comparisons(looks)
    found: dict[Variant, list[int | None]] = {}
    for one in tested_at_looks(expects):
        for method, frozen in _SIDES:
            variant = (one["base_model"], one[method], one[frozen])
            found.setdefault(variant, []).append(settled.get(key_of(one)))
    return {
        variant: max(number for number in numbers if number is not None)
        for variant, numbers in found.items()
        if None not in numbers
    }


def without_settled(plan: StudyPlan, looks: Looks) -> StudyPlan:
    """Return the plan without the later seeds of settled methods; their cells are unavailable."""
    after, seeds = plan.study.looks or (), plan.study.seeds
    methods = settled_methods(plan.study.comparisons(), looks)
    if not methods:
        return plan

    def reduced(cell: PlannedCell) -> PlannedCell:
        look = methods.get((cell.base_model, cell.method, cell.frozen))
        if look is None or seeds.index(cell.seed) < after[look - 1]:
            return cell
        reason = f"settled at look {look} ({after[look - 1]} seeds)"
        return replace(
            cell,
            step=None,
            checkpoint=None,
            expected=None,
            unavailable=reason,
            settled=True,
        )

    return plan.with_cells([reduced(cell) for cell in plan.cells])


def up_to_look(plan: StudyPlan, look: int) -> StudyPlan:
    seeds = plan.study.seeds[: (plan.study.looks or ())[look - 1]]
    return plan.with_cells([cell for cell in plan.cells if cell.seed in seeds])


def next_look(study_looks: Sequence[int], looks: Looks) -> int | None:
    """Return the first look, counted from 1, that is not recorded."""
    recorded = {look["look"] for look in looks}
    numbers = range(1, len(study_looks) + 1)
    return next((number for number in numbers if number not in recorded), None)
