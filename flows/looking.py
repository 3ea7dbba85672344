"""Looks (interim analyses): test comparisons after some of the seeds, and drop settled methods.

A run computes a study with `looks` in stages: the seeds up to the next look, the tests, then the
seeds up to the look after it. The store keeps the outcome of each look, from which every later run
and `lce plan` omit the same cells.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flows.run_context import RunContext
from flows.work import RunOptions, Work, preflight
from lce_core.store.artifacts import Store
from lce_core.study import looks
from lce_core.study.variants import variant_label

_COLUMNS = (
    *("base_model", "method", "frozen", "other_method", "other_frozen", "benchmark"),
    *("eval_length", "metric", "expected", "margin", "outcome", "look", "num_seeds", "level"),
    "p_adjusted",
)
# A study's name is kebab-case, so it needs no quoting.
_TESTED = (
    f"SELECT {', '.join(_COLUMNS)} FROM expectations WHERE study = '{{study}}'"
    " AND family = 'primary' AND look IS NOT NULL"
)


def look(run: RunContext, tell: Callable[[str], None]) -> bool:
    """Test the comparisons of the run's studies that have reached a look, and record the outcomes.

    `tell` gets a line for the user per tested study. Failed cells leave their comparisons open. If
    seeds are left, give the run its next stage and return True.
    """
    reached = [work for work in run.works if work.look]
    if not reached:
        return False
    from tasks.projections import refresh  # loads DuckDB, which a worker without looks lacks

    store = refresh(run.execution.home)
    for work in reached:
        tell(_tested(work, store))
    goes_on = any(work.look != len(work.wanted.study.looks or ()) for work in reached)
    if goes_on:
        studies = [work.request.study for work in run.works]
        # Runs with --select or --budget have no looks. Other options act on the first stage only.
        run.start(preflight(studies, run.execution, RunOptions()))
    return goes_on


def _tested(work: Work, store: Store) -> str:
    """Record a study's look, unless another run has recorded it; return a line for the user."""
    plan, number = work.request.plan.to_json(), work.look
    assert number is not None
    before = store.studies.looks(plan)
    if all(one["look"] != number for one in before):
        from tasks.questions import read

        settled = looks.settled_comparisons(before)
        rows = read(store.home, _TESTED.format(study=plan["study"]))
        found = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
        named = {(one["benchmark"], one.get("metric")) for one in plan["expects"]}
        for one in found:
            if (one["benchmark"], one["metric"]) not in named:
                del one["metric"]  # the benchmark's default metric, which no entry names
        tested = [one for one in _one_each(found) if looks.key_of(one) not in settled]
        store.studies.record_look(plan, number, tested)
    after = store.studies.looks(plan)
    methods = looks.settled_methods(plan["expects"], after)
    several = len(work.wanted.study.base_models) > 1
    names = [
        variant_label(method, frozen) + f" ({base_model})" * several
        for (base_model, method, frozen), at in methods.items()
        if at == number
    ]
    done = len(looks.settled_comparisons(after))
    total = len(looks.tested_at_looks(plan["expects"]))
    settled_now = f"settled: {', '.join(names)}" if names else "no method is settled"
    return (
        f"{plan['study']}: look {number} after {plan['looks'][number - 1]} seeds:"
        f" {done} of {total} comparisons settled so far; {settled_now}"
    )


def _one_each(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return one row per comparison, of several profiles preferably one in which it is open."""
    found: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row["outcome"] not in looks.SETTLED, reverse=True):
        found.setdefault(looks.key_of(row), row)
    return list(found.values())
