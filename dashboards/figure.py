"""Tables and figures of the report as HTML. The templates are in `page/`.

Templates escape every text; only a `Markup` is HTML already.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dashboards.contents import Row
from dashboards.families import MARKS, Variant
from lce_core import formats

PAGE = Path(__file__).parent / "page"
TEMPLATES = Environment(
    loader=FileSystemLoader(PAGE), autoescape=True, trim_blocks=True, undefined=StrictUndefined
)
TEMPLATES.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
_MACROS: Any = TEMPLATES.get_template("macros.html").module


@dataclass(frozen=True)
class Cell:
    """An entry of a table: what it shows, and the attributes of its HTML element."""

    shown: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_number(self) -> bool:
        return str(self.facts.get("class", "")).startswith("number")


Value = str | int | float | bool | Variant | Cell | None


@dataclass(frozen=True)
class Table:
    """The unrounded values of a table, as column names and rows. The first column names rows."""

    columns: Sequence[str | Cell]
    rows: Sequence[Sequence[Value]]
    same: Mapping[Variant, Variant] = field(default_factory=dict)
    """Variants that repeat the computation of another one (`dashboards.families.duplicates`)."""
    kind: str = ""
    groups: Sequence[tuple[str, int]] = ()

    @classmethod
    def of(cls, rows: Iterable[Row], columns: Mapping[str, str]) -> Table:
        return cls([*columns.values()], [[row[name] for name in columns] for row in rows])

    @property
    def heads(self) -> Iterator[Cell]:
        for name, *column in zip(self.columns, *self.rows, strict=True):
            if isinstance(name, Cell):
                yield name
            else:
                is_number = any(cell_of(one).is_number for one in column)
                yield Cell(name, {"class": "number"} if is_number else {})

    @property
    def body(self) -> Iterator[tuple[Mapping[str, object], Cell, list[Cell]]]:
        for first, *others in self.rows:
            facts: Mapping[str, object] = {}
            head = cell_of(first)
            if isinstance(first, Variant):
                # The page's script finds the elements of a method by these attributes.
                facts = {"data-method": first.method, "data-frozen": str(first.frozen).lower()}
                note = Markup(' <span class="same">= {}</span>')
                again = note.format(code(self.same[first].label)) if first in self.same else ""
                head = Cell(code(first.label) + again, {"data-csv": first.label})
            yield facts, head, list(map(cell_of, others))

    def html(self) -> Markup:
        return Markup(_MACROS.table(self))

    def saved(self, name: str) -> Markup:
        return Markup(_MACROS.saved(name, self))

    def folded(
        self, name: str, title: str, about: str, *, is_open: bool = True, note: str = ""
    ) -> Markup:
        return Markup(_MACROS.folded(name, title, about, self, is_open, note))


def figure(
    title: str,
    caption: str,
    pictures: Iterable[str],
    table: Table | None = None,
    kind: str = "panels",
) -> Markup:
    """Return the figure as HTML, with buttons that save its values and pictures."""
    return Markup(_MACROS.figure(title, caption, pictures, table, kind))


def rendered(template: str, **values: object) -> Markup:
    return Markup(TEMPLATES.get_template(template).render(values))


def paragraph(text: str) -> Markup:
    return Markup("<p>{}</p>").format(text)


def code(text: str) -> Markup:
    return Markup("<code>{}</code>").format(text)


def link(address: str, text: str) -> Markup:
    return Markup('<a href="{}">{}</a>').format(address, text)


def verdict_mark(verdict: str | None, against: str = "") -> Markup:
    """Return the mark of "better" or "worse" with its meaning for screen readers, or ""."""
    image = Markup(' <span role="img" aria-label="{}{}">{}</span>')
    return image.format(verdict, against, MARKS[verdict]) if verdict in MARKS else Markup()


def names_as_code(sentence: str, variants: Iterable[Variant]) -> Markup:
    names = sorted({one.label for one in variants if not one.is_control}, key=len, reverse=True)
    if not names:
        return Markup.escape(sentence)
    name = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, names))})(?![\w-])")
    return Markup("").join(
        code(part) if number % 2 else part for number, part in enumerate(name.split(sentence))
    )


TEMPLATES.filters["named"] = names_as_code


def cell_of(value: Value) -> Cell:
    if isinstance(value, Cell):
        return value
    if value is None:
        return Cell()
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    if isinstance(value, int):
        return Cell(f"{value:,}", {"class": "number", "data-value": value})
    if isinstance(value, Variant):
        return Cell(code(value.label))
    return score_cell(value) if isinstance(value, float) else Cell(value)


def score_cell(value: float, low: float = 0.0, high: float = 0.0, *, is_best: bool = False) -> Cell:
    """Return a cell with a number, bold if it is the best, and with its range if low < high."""
    facts = {"class": "number", "data-value": repr(float(value))}
    shown = Markup("<b>{}</b>" if is_best else "{}").format(formats.score(value))
    if low < high:
        facts |= {"data-low": repr(float(low)), "data-high": repr(float(high))}
        ends = formats.score(low), formats.score(high)
        shown += Markup(" <small>[{}, {}]</small>").format(*ends)
    return Cell(shown, facts)
