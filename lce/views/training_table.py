"""Table of `lce plan`: training tokens and FLOPs of each tuned method."""

from __future__ import annotations

from rich.table import Table

from flows.terminal import plain_table
from lce_core import formats
from lce_core.study.plan import StudyPlan
from lce_core.study.step_cost import reference_flops
from lce_core.study.variants import variant_label


def training_table(plan: StudyPlan) -> Table | None:
    """Return a table of each tuned method's own training with one seed, without trials of `tune`.

    With `match: flops` the last column shows the FLOPs as a percentage of the budget; the rest is
    rounding to whole optimizer steps. With `match: tokens`, return None if all methods have equal
    tokens and FLOPs.
    """
    study = plan.study
    found = {
        (cell.base_model, variant_label(cell.method, False)): (cell.train_tokens, cell.train_flops)
        for cell in plan.cells
        if cell.train_tokens is not None and cell.train_flops is not None
    }
    per_model = {(base_model, *cost) for (base_model, _), cost in found.items()}
    matched = study.match == "flops" and study.train_tokens is not None
    if not matched and len(per_model) == len({base_model for base_model, _ in found}):
        return None
    several = len(study.base_models) > 1
    texts = ("base model", "trained method")[not several :]
    table = plain_table(texts, ("training tokens", "FLOPs", *["of the budget"] * matched))
    budgets = {
        base.known_as: reference_flops(base, study.train_tokens or 0, study.target_context)
        for base in study.base_models
        if base.is_known
    }
    for row, (tokens, flops) in found.items():
        share = [f"{flops / budgets[row[0]]:.1%}".replace("%", " %")] * matched
        table.add_row(*row[not several :], formats.count(tokens), f"{flops:.3g}", *share)
    return table
