"""`lce verify`: recompute a sample of a study's cells, or reread all artifacts of a store."""

import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from flows.request import as_last_run, compile_request
from flows.selection import select_cells
from flows.terminal import Terminal, plain_table
from lce_core import formats
from lce_core.errors import SpecError
from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.records import Record
from lce_core.store.steps import Step
from lce_core.store.verification import Verification, compare, keep, not_computed, reread, sampled
from lce_core.study.plan import StudyPlan
from tasks.projections import rebuild_catalog, refresh
from tasks.questions import catalog_path
from tasks.verification import compute_again, home_aside

QUIET_SECONDS = 1.0
"""Seconds until `lce verify --files` shows its progress bar, so that a fast check shows none."""


def verify_study(
    study: str, execution: Execution, *, sample: str, seed: int, select: str, tolerance: float
) -> bool:
    """Recompute sampled cells, compare and save the comparisons; return True if all agree."""
    study, execution = as_last_run(study, execution)
    plan = select_cells(compile_request(study, execution).plan, select)
    store, console = Store(execution.home), Terminal(highlight=False)
    done = _done(store, plan)
    drawn = sampled(list(done), sample, seed)
    if not drawn:
        raise SpecError(
            study,
            "no done cell whose weights are here",
            "a study with finished cells and the weights that they read",
            "compute the study with `lce run`, or verify it in the home that has its weights",
        )
    console.print(f"{plan.study.study}: {len(drawn):,} of {len(done):,} done cells are recomputed")
    found, begun = [], time.monotonic()
    steps = [done[fingerprint][0] for fingerprint in drawn]
    with home_aside(store) as aside, closing(compute_again(steps, store, aside, execution)) as all_:
        for again in all_:
            committed = done[again.step.fingerprint]
            if again.record is None:
                one = not_computed(committed[1], str(again.error), tolerance)
            else:
                first = (store.path(again.step), committed[1])
                one = compare(first, (again.folder, again.record), tolerance)
            keep(store.home, one)
            found.append(one)
            if not one.agrees:
                line = f"  {again.step.name}: {_difference(one)}"
                console.print(line, markup=False, soft_wrap=True)
    _show(console, found, time.monotonic() - begun)
    refresh(store.home)
    return all(one.agrees for one in found)


def verify_files(home: Path) -> bool:
    """Reread all artifacts of a store and print the damaged ones; return True if none is."""
    store, console = Store(home), Terminal(highlight=False)
    shown, begun = Progress(console=Console(stderr=True), transient=True), time.monotonic()
    task = shown.add_task("reading artifacts", total=None)

    def report(done: int, total: int) -> None:
        if time.monotonic() - begun > QUIET_SECONDS and not shown.live.is_started:
            shown.start()
        shown.update(task, completed=done, total=total)

    try:
        found = reread(store, report)
    finally:
        if shown.live.is_started:
            shown.stop()
    for folder, wrong in found.damage.items():
        console.print(f"  {folder.parent.name} {folder.name}: {wrong}", soft_wrap=True)
    amount = f"{formats.size(found.num_bytes)} in {formats.duration(time.monotonic() - begun)}"
    console.print(f"{found.num_artifacts:,} artifacts read, {amount}: ", end="")
    console.print(f"{len(found.damage):,} damaged" if found.damage else "none damaged")
    if found.damage:
        console.print("`lce run STUDY` recomputes damaged cells and what missing cells need")
        if catalog_path(home).is_file():
            # The catalog notices changed files by size and time, which damage may leave unchanged.
            rebuild_catalog(home)
    return not found.damage


def _done(store: Store, plan: StudyPlan) -> dict[str, tuple[Step, Record]]:
    """Return the finished cells with their records, without those whose weights are elsewhere."""
    steps = {cell.step.fingerprint: cell.step for cell in plan.cells if cell.step}.values()
    listing, found = store.listing(), {}
    inputs = {one: plan.steps[one] for step in steps for one in step.parents.values()}
    elsewhere = {
        fingerprint
        for fingerprint, step in inputs.items()
        if store.result(step, listing) and not store.record(step, listing)
    }
    for step in steps:
        if elsewhere.isdisjoint(step.parents.values()) and (record := store.record(step, listing)):
            found[step.fingerprint] = (step, record)
    store.file_facts.save()
    return found


def _difference(one: Verification) -> str:
    if one.error is not None:
        return f"could not be recomputed: {one.error}"
    parts = [
        f"{metric.metric} {metric.committed} -> {metric.again}"
        for metric in one.metrics
        if metric.committed != metric.again
    ]
    if other := one.num_samples - one.num_same_samples:
        parts.append(f"{other:,} of {one.num_samples:,} samples differ")
    if one.largest_nll_difference:
        parts.append(f"losses by position differ by up to {one.largest_nll_difference:.3g}")
    return "; ".join(parts)


def _show(console: Console, found: Sequence[Verification], seconds: float) -> None:
    table = plain_table(("metric",), ("cells", "same", "largest difference"))
    for name in sorted({metric.metric for one in found for metric in one.metrics}):
        twice = [m for one in found for m in one.metrics if m.metric == name]
        differences = [m.difference for m in twice if m.difference is not None]
        same = sum(m.committed == m.again for m in twice)
        table.add_row(name, f"{len(twice):,}", f"{same:,}", f"{max(differences, default=0.0):.3g}")
    console.print(table)
    samples, same = sum(v.num_samples for v in found), sum(v.num_same_samples for v in found)
    console.print(f"samples: {same:,} of {samples:,} the same")
    counts = {
        "identical": sum(one.identical for one in found),
        "within the tolerance": sum(one.agrees and not one.identical for one in found),
        "different": sum(not one.agrees and one.error is None for one in found),
        "not computed": sum(one.error is not None for one in found),
    }
    shown = ", ".join(f"{number:,} {name}" for name, number in counts.items() if number)
    console.print(f"{len(found):,} cells in {formats.duration(seconds)}: {shown}")
    if others := sum(not one.same_environment and one.error is None for one in found):
        console.print(f"{others:,} of them first computed with other code, libraries or hardware")
