"""Group methods into families, so that no chart panel has more lines than readers can follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from catalog.palette import Look, looks
from dashboards.contents import Contents, Row
from lce_core.study.variants import CONTROL, variant_label

MOST_LINES = 6
TITLES = {
    "interpolation": "Position interpolation",
    "base": "Change of base",
    "dynamic": "Dynamic scale",
    "approximate": "Approximate attention",
}
OTHERS = "Other methods"
NO_EXTENSION = "Base model"
"""Title of the controls: the base model without an extension method, frozen and fine-tuned."""


@dataclass(frozen=True)
class Variant:
    """A method with frozen or with tuned weights: one row in the tables of a study."""

    method: str
    frozen: bool

    @classmethod
    def of(cls, row: Row) -> Variant:
        return cls(row["method"], row["frozen"])

    @classmethod
    def pair(cls, row: Row) -> tuple[Variant, Variant]:
        """Return the variant of a catalog row and the one that the row compares it with."""
        return cls.of(row), cls(row["other_method"], row["other_frozen"])

    @property
    def label(self) -> str:
        return variant_label(self.method, self.frozen)

    @property
    def is_control(self) -> bool:
        return self.method == CONTROL


@dataclass(frozen=True)
class Family:
    """Methods that extend the context in the same way, such as by another RoPE base."""

    key: str
    """Identifier, the same in all studies; decides the family's position."""
    title: str
    variants: tuple[Variant, ...]


def controls(contents: Contents) -> tuple[Variant, ...]:
    return tuple(one for one in map(Variant.of, contents.overview) if one.is_control)


def families(contents: Contents) -> list[Family]:
    """Group all variants except the controls by family, in the order of `TITLES`, others last."""
    known = {Variant.of(row): row["family"] for row in contents.families}
    order = [one for one in map(Variant.of, contents.overview) if not one.is_control]
    keys = [key for key in TITLES if key in known.values()]
    found = [Family(key, TITLES[key], tuple(v for v in order if known[v] == key)) for key in keys]
    others = tuple(one for one in order if known[one] not in TITLES)
    return [*found, *([Family("other", OTHERS, others)] if others else [])]


def method_looks(overview: Sequence[Row], found: Sequence[Row]) -> dict[str, Look]:
    """Return colours and mark shape by method, from rows of the queries `overview`, `families`."""
    known = {row["method"]: row["family"] for row in found}
    return looks({row["method"]: known[row["method"]] for row in overview})


def groups(contents: Contents) -> list[Family]:
    base = controls(contents)
    return [*([Family("control", NO_EXTENSION, base)] if base else []), *families(contents)]


def ordered(contents: Contents) -> list[Variant]:
    """Return all variants: the controls first, then family by family."""
    return [one for group in groups(contents) for one in group.variants]


def duplicates(contents: Contents) -> dict[Variant, Variant]:
    """Return, for each variant that repeats an earlier one's scores, the first such variant."""
    order = [Variant.of(row) for row in contents.overview]
    found: dict[Variant, Variant] = {}
    for row in contents.duplicates:
        first, second = sorted(Variant.pair(row), key=order.index)
        found[second] = min(first, found.get(second, first), key=order.index)
    return found


def panels(found: Sequence[Family], shown: Sequence[Variant]) -> list[Family]:
    """Split families into chart panels of at most `MOST_LINES` of the `shown` variants.

    A larger family is split into its frozen and its tuned variants, and these, if needed, into
    groups of `MOST_LINES` in the study's order.
    """
    parts: list[Family] = []
    for family in found:
        members = [one for one in family.variants if one in shown]
        if len(members) <= MOST_LINES:
            parts.append(Family(family.key, family.title, tuple(members)))
            continue
        for frozen, name in ((True, "frozen"), (False, "tuned")):
            half = [one for one in members if one.frozen == frozen]
            for start in range(0, len(half), MOST_LINES):
                number = f" {start // MOST_LINES + 1}" if len(half) > MOST_LINES else ""
                some = tuple(half[start : start + MOST_LINES])
                parts.append(Family(family.key, f"{family.title}, {name}{number}", some))
    return [part for part in parts if part.variants]
