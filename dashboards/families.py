"""Rows of a study by what they change: no chart holds more lines than an eye can follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.contents import Contents, Row

CONTROL = "none"
MOST_LINES = 6
TITLES = {
    "interpolation": "Position interpolation",
    "base": "Change of base",
    "dynamic": "Dynamic scale",
    "approximate": "Approximate attention",
}
OTHERS = "Other methods"
NO_EXTENSION = "No extension"
"""Of the base model and of what trains it without a change."""


@dataclass(frozen=True)
class Variant:
    """One row of the study: a method, frozen or tuned."""

    method: str
    frozen: bool

    @classmethod
    def of(cls, row: Row) -> Variant:
        """The variant that a row of a view is about."""
        return cls(row["method"], row["frozen"])

    @property
    def label(self) -> str:
        """The method, and "tuned" if it was."""
        return self.method if self.frozen else f"{self.method} tuned"

    @property
    def is_control(self) -> bool:
        """Whether it extends nothing."""
        return self.method == CONTROL


@dataclass(frozen=True)
class Family:
    """Variants that change the same thing."""

    key: str
    """Short and the same in every study: for colours and the order."""
    title: str
    variants: tuple[Variant, ...]


def controls(contents: Contents) -> tuple[Variant, ...]:
    """What extends nothing: the base model, as it is and fine-tuned."""
    return tuple(one for one in map(Variant.of, contents.overview) if one.is_control)


def families(contents: Contents) -> list[Family]:
    """All variants but the controls, families and members in the study's order.

    Args:
      contents: of one base model.
    """
    known = {Variant.of(row): row["family"] for row in contents.families}
    order = [one for one in map(Variant.of, contents.overview) if not one.is_control]
    keys = [key for key in TITLES if key in known.values()]
    found = [Family(key, TITLES[key], tuple(v for v in order if known[v] == key)) for key in keys]
    others = tuple(one for one in order if known[one] not in TITLES)
    return [*found, *([Family("other", OTHERS, others)] if others else [])]


def ordered(contents: Contents) -> list[Variant]:
    """All variants: the controls, then family by family.

    Args:
      contents: of one base model.
    """
    found = families(contents)
    return [*controls(contents), *(one for family in found for one in family.variants)]


def panels(found: Sequence[Family], shown: Sequence[Variant]) -> list[Family]:
    """The families as panels of at most `MOST_LINES` of the shown variants, empty ones left out.

    What is too many is parted into frozen and tuned, then by order.
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
