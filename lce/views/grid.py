"""Progress of a study as a grid with a line per method and a column per benchmark and length.

Each entry is one character that stands for the cells of all tasks and seeds. `lce status` prints
the grid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from lce.views.planning import Inspection
from lce_core.study.progress import Change
from lce_core.study.states import GroupState, group_state
from lce_core.study.variants import variant_label

SIGNS: dict[GroupState, str] = {
    "done": "●", "in part": "◐", "running": "▶", "failed": "✗", "missing": "·", "unavailable": "-",
}  # fmt: skip
ASCII: dict[GroupState, str] = {
    "done": "#", "in part": "+", "running": ">", "failed": "!", "missing": ".", "unavailable": "-",
}  # fmt: skip
"""Character of each state on terminals that are not UTF-8."""

Key = tuple[str, str, str, int]
"""Base model, variant (such as "yarn tuned"), benchmark and length in tokens."""


@dataclass(frozen=True)
class _Columns:
    benchmark: str
    lengths: tuple[int, ...]

    @property
    def width(self) -> int:
        return max(len(self.benchmark) + 1, sum(map(_room, self.lengths)))


def grid_lines(
    found: Inspection, running: Collection[str], width: int, signs: Mapping[GroupState, str]
) -> Iterator[str]:
    """Yield the lines of the grid and its legend.

    A grid wider than `width` is split into several grids, one below the other.

    Args:
      found: the study's cells and their states.
      running: fingerprints of the running steps.
      width: maximum width in characters.
      signs: character for each state, `SIGNS` or `ASCII`.
    """
    cells = _signs(found, running)
    several = len({model for model, *_ in cells}) > 1
    rows = list(dict.fromkeys((model, variant) for model, variant, *_ in cells))
    labels = [f"{model} {variant}" if several else variant for model, variant in rows]
    beside = max(map(len, labels), default=0) + 2
    for part in _parts(_columns(cells, width - beside), width - beside):
        yield (
            " " * beside + "".join(column.benchmark.ljust(column.width) for column in part).rstrip()
        )
        heads = ("".join(map(_head, column.lengths)).ljust(column.width) for column in part)
        yield " " * beside + "".join(heads).rstrip()
        for label, (model, variant) in zip(labels, rows, strict=True):
            line = label.ljust(beside)
            for column in part:
                states = (
                    cells.get((model, variant, column.benchmark, at)) for at in column.lengths
                )
                shown = zip(states, column.lengths, strict=True)
                text = "".join((signs[one] if one else " ").ljust(_room(at)) for one, at in shown)
                line += text.ljust(column.width)
            yield line.rstrip()
    used = set(cells.values())
    yield "  ".join(f"{text} {sign}" for sign, text in signs.items() if sign in used)


def _signs(found: Inspection, running: Collection[str]) -> dict[Key, GroupState]:
    changes: dict[Key, list[Change | Literal["running"]]] = {}
    for cell in found.plan.cells:
        variant = variant_label(cell.method, cell.frozen)
        key = (cell.base_model, variant, cell.benchmark, cell.eval_length)
        runs = cell.step is not None and cell.step.fingerprint in running
        change = "running" if runs else found.cell_state(cell).change
        changes.setdefault(key, []).append(change)
    return {key: group_state(states) for key, states in changes.items()}


def _columns(cells: Collection[Key], width: int) -> Iterator[_Columns]:
    """Yield the columns of each benchmark, divided where they exceed `width` characters."""
    lengths: dict[str, set[int]] = {}
    for _, _, benchmark, length in cells:
        lengths.setdefault(benchmark, set()).add(length)
    for benchmark, at in lengths.items():
        piece: list[int] = []
        for length in sorted(at):
            if piece and sum(map(_room, [*piece, length])) > width:
                yield _Columns(benchmark, tuple(piece))
                piece = []
            piece.append(length)
        yield _Columns(benchmark, tuple(piece))


def _parts(columns: Iterable[_Columns], width: int) -> Iterator[list[_Columns]]:
    part: list[_Columns] = []
    for column in columns:
        if part and sum(one.width for one in part) + column.width > width:
            yield part
            part = []
        part.append(column)
    if part:
        yield part


def _head(length: int) -> str:
    return _spelled(length).ljust(_room(length))


def _room(length: int) -> int:
    return len(_spelled(length)) + 1


def _spelled(length: int) -> str:
    return f"{length // 1024}k" if length % 1024 == 0 else str(length)
