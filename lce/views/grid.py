"""Progress of a study as a grid with a line per method and a column per benchmark and length.

Each entry is one character that stands for the cells of all tasks and seeds. `lce status` prints
the grid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Literal

from flows.terminal import titled_grids
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


def grid_lines(
    found: Inspection, running: Collection[str], width: int, signs: Mapping[GroupState, str]
) -> Iterator[str]:
    """Yield the lines of the grid and its legend.

    A grid wider than `width` is split into several grids, one below the other.

    Args:
      running: fingerprints of the running steps.
      signs: character for each state, `SIGNS` or `ASCII`.
    """
    cells = _states(found, running)
    several = len({model for model, *_ in cells}) > 1
    rows = list(dict.fromkeys((model, variant) for model, variant, *_ in cells))
    labels = ["", *(f"{model} {variant}" if several else variant for model, variant in rows)]
    lengths: dict[str, set[int]] = {}
    for *_, benchmark, length in cells:
        lengths.setdefault(benchmark, set()).add(length)

    def column(benchmark: str, length: int) -> list[str]:
        states = (cells.get((*row, benchmark, length)) for row in rows)
        head = f"{length // 1024}k " if length % 1024 == 0 else f"{length} "
        return [head, *((signs[state] if state else "").ljust(len(head)) for state in states)]

    blocks = [
        (f"{benchmark} ", [column(benchmark, length) for length in sorted(evaluated)])
        for benchmark, evaluated in lengths.items()
    ]
    beside = max(map(len, labels)) + 2
    for lines in titled_grids([label.ljust(beside) for label in labels], blocks, width):
        yield from lines
    used = set(cells.values())
    yield "  ".join(f"{text} {sign}" for sign, text in signs.items() if sign in used)


def _states(found: Inspection, running: Collection[str]) -> dict[Key, GroupState]:
    changes: dict[Key, list[Change | Literal["running"]]] = {}
    for cell in found.plan.cells:
        variant = variant_label(cell.method, cell.frozen)
        key = (cell.base_model, variant, cell.benchmark, cell.eval_length)
        runs = cell.step is not None and cell.step.fingerprint in running
        change = "running" if runs else found.cell_state(cell).change
        changes.setdefault(key, []).append(change)
    return {key: group_state(states) for key, states in changes.items()}
