"""Measure planning of a large study: time, memory, and the number of listed folders.

The study is the toy study with so many seeds that it has about --cells cells. Its store contains
artifacts of every second seed, each with a record and a file of one byte. Functions of
`lce_core` are timed in this process. Commands are timed as processes, with imports and peak memory,
on an empty store and on the half-finished one. With --many, `lce plan` is also timed for half and
all of that many cells on an empty store. The limits are those of commands.

    python perf/planning.py [--cells 10800] [--many 100000] [--out FILE.json]
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import yaml
from measuring import Row, at_most, measure, timed
from study import LCE, run

from flows.settings import STUDIES
from lce_core.store.artifacts import Attempt, Store
from lce_core.study.plan import StudyPlan, compile_study
from lce_core.study.plan_diff import compare
from lce_core.study.progress import inspect
from lce_core.study.study_file import parse_study

TOY: dict[str, Any] = yaml.safe_load((STUDIES / "toy.yaml").read_text(encoding="utf-8"))
del TOY["expects"]  # not needed for planning
LIMIT_SECONDS, LIMIT_MANY_SECONDS, LIMIT_MEGABYTES = 10.0, 120.0, 500


def rows(options: Namespace) -> Iterator[Row]:
    """Yield all figures, and check that exactly the committed steps are found done."""
    home, listings = options.folder / "home", count_listings()
    store = Store(home)
    store.prepare()
    per_seed = len(planned(1).cells)
    seeds = round(options.cells / per_seed)

    def in_process(what: str, action: Callable[[], Any]) -> tuple[Row, Any]:
        before = listings[0]
        wall, cpu, result = timed(action)
        listed = listings[0] - before
        return {"function": what, "wall s": wall, "CPU s": cpu, "folders listed": listed}, result

    compiling, plan = in_process("compile the study", lambda: planned(seeds))
    looking, _ = in_process("look up its steps, none done", lambda: inspect(plan, store, {}))
    on_empty = command("plan", home, seeds)
    done = {p for p, step in plan.steps.items() if step.axes.get("seed", 0) % 2 == 0}
    with mock.patch("os.fsync"):  # thousands of artifacts, which need not survive a crash
        for fingerprint in done:
            store.ensure(plan.steps[fingerprint], one_byte, {})
    fresh = Store(home)
    half, states = in_process("look up its steps, half done", lambda: inspect(plan, fresh, {}))
    assert {p for p, state in states.items() if state.state == "done"} == done
    ids = {step.id for step in plan.steps.values()}
    reasons, diff = in_process(
        "find the reasons of missing steps", lambda: compare(plan, fresh, states, ids)
    )
    assert len(diff.states) == len(plan.steps)
    assert not diff.orphans
    yield from (compiling, looking, half, reasons)
    yield {"command": f"`lce plan`, {len(plan.cells):,} cells, none done", **on_empty}
    some = f"{len(done):,} of {len(plan.steps):,} steps done"
    for name in ("plan", "status"):
        yield {"command": f"`lce {name}`, {some}", **command(name, home, seeds)}
    for number in (options.many // 2, options.many) if options.many else ():
        seeds = round(number / per_seed)
        found = command("plan", options.folder / "empty", seeds, LIMIT_MANY_SECONDS)
        yield {"command": f"`lce plan`, {seeds * per_seed:,} cells", **found}


def planned(seeds: int) -> StudyPlan:
    return compile_study(parse_study(study_file(seeds), "toy.yaml"), {})


def study_file(seeds: int) -> str:
    return yaml.safe_dump({**TOY, "seeds": list(range(seeds))})


def command(name: str, home: Path, seeds: int, limit: float = LIMIT_SECONDS) -> Row:
    """Run an `lce` command; return its wall and CPU seconds and its peak memory."""
    file = home.with_name("study.yaml")
    file.write_text(study_file(seeds), encoding="utf-8")
    wall, cpu, megabytes, _ = run([*LCE, name, str(file)], home)
    time = {"wall s": wall, "limit": at_most(wall, limit), "CPU s": cpu}
    return {**time, "MB": megabytes, "limit, MB": at_most(megabytes, LIMIT_MEGABYTES)}


def one_byte(attempt: Attempt) -> dict[str, Any]:
    (attempt.out / "a").write_text("a", encoding="utf-8")
    return {}


def count_listings() -> list[int]:
    """Return a list with one counter: the folders that this process has listed since this call."""
    count = [0]

    def hook(event: str, _: object) -> None:
        if event in ("os.listdir", "os.scandir"):
            count[0] += 1

    sys.addaudithook(hook)
    return count


if __name__ == "__main__":
    measure(__doc__, rows, cells=10_800, many=0)
