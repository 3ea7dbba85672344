"""Predict the fraction of a cell's tokens that the model processes; caches cover the other tokens.

Cells of one model share the losses of equal text windows, and prompts with a common prefix share
its key-value cache. The prediction assumes that no cache becomes full, and that no worker starts in
the middle of a model's cells.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from lce_core.methods import Applied, begins_alike
from lce_core.rope import ContextLengths
from lce_core.store.steps import Step
from lce_core.study.step_kinds import CellSpec, spec_of


def shares_of_text(steps: Iterable[Step]) -> dict[str, float]:
    """Return by fingerprint the fraction of a cell's tokens that the model processes, unless 1."""
    units: dict[object, list[tuple[Step, CellSpec]]] = {}
    found: dict[str, float] = {}
    for step in steps:
        spec = spec_of(step) if step.kind == CellSpec.kind else None
        if not isinstance(spec, CellSpec):
            continue
        if spec.benchmark.scores_text:
            units.setdefault(CellSpec.unit(step), []).append((step, spec))
        # Prompts share no cache if frequencies follow the prompt's length.
        elif spec.benchmark.fills_length or not spec.method.length_dependent(
            spec.base_model.geometry, _applied(spec).lengths
        ):
            answers = spec.benchmark.answers(spec.task).number
            whole = spec.prompts_cost(step).tokens
            tokens = whole / answers if answers else spec.eval_length
            # In bf16, choices that are only scored share no prefix.
            if tokens and (answers or spec.evaluation.precision != "bf16"):
                share = spec.benchmark.distinct_share(spec.task, tokens)
                # Control prompts share nothing.
                unshared = 1 - whole / spec.cost(step).tokens
                found[step.fingerprint] = share + (1 - share) * unshared
    for cells in units.values():
        found |= _windows_passed_once(sorted(cells, key=lambda cell: CellSpec.rank(cell[0])))
    return {fingerprint: share for fingerprint, share in found.items() if share < 1}


def _windows_passed_once(cells: list[tuple[Step, CellSpec]]) -> dict[str, float]:
    """Return by fingerprint the fraction of windows that no earlier cell of a worker scored."""
    read: list[tuple[object, CellSpec, NDArray[np.int64]]] = []
    found: dict[str, float] = {}
    for step, spec in cells:
        grid = spec.benchmark.window_grid(spec.task, spec.eval_length)
        if grid is None:
            continue
        stream, stride = grid
        starts = np.arange(spec.cost(step).tokens // spec.eval_length) * stride
        known = np.zeros(len(starts), dtype=np.bool_)
        for other, longer, passed in read:
            if other == stream and _read_off(spec, longer):
                known |= np.isin(starts, passed)
        read.append((stream, spec, starts))
        if len(starts):
            found[step.fingerprint] = 1 - float(known.mean())
    return found


def _read_off(spec: CellSpec, longer: CellSpec) -> bool:
    """Return True if `spec` can reuse losses of `longer`; bf16 requires equal lengths."""
    if spec.eval_length == longer.eval_length:
        return True
    if spec.evaluation.precision == "bf16":
        return False
    own = _applied(spec)
    return begins_alike(own, own.at(longer.eval_length))


def _applied(spec: CellSpec) -> Applied:
    geometry = spec.base_model.geometry
    lengths = ContextLengths(geometry.trained_context, spec.target_context, spec.eval_length)
    return Applied(spec.method, geometry, lengths, spec.base_model.shape.num_layers)
