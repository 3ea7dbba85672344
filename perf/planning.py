"""Measure commands on a large study: wall and CPU time, and peak memory.

The study is the toy study with so many seeds that it has about --cells cells. Commands run on an
empty store, and on one with artifacts of every second seed, each with a record and a file of one
byte. With --many, `lce plan` is also timed for that many cells on an empty store.
"""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import yaml
from measuring import Row, at_most, measure
from study import LCE, run

from lce_core.store.artifacts import Store
from lce_core.study.plan import StudyPlan, compile_study
from lce_core.study.progress import inspect
from lce_core.study.study_file import parse_study
from tests.support.free_steps import write_file
from tests.support.toy_study import TOY


def rows(options: Namespace) -> Iterator[Row]:
    """Yield all figures, and check that exactly the committed steps are found done."""
    home = options.folder / "home"
    store = Store(home)
    store.prepare()
    per_seed = len(planned(1).cells)
    seeds = round(options.cells / per_seed)
    plan = planned(seeds)
    yield command("plan", home, seeds, f"{len(plan.cells):,} cells, none done")
    done = {p for p, step in plan.steps.items() if step.axes.get("seed", 0) % 2 == 0}
    with mock.patch("os.fsync"):  # thousands of artifacts, which need not survive a crash
        for fingerprint in done:
            store.ensure(plan.steps[fingerprint], write_file, {})
    states = inspect(plan, Store(home), {})
    assert {p for p, state in states.items() if state.state == "done"} == done
    for name in ("plan", "status"):
        yield command(name, home, seeds, f"{len(done):,} of {len(plan.steps):,} steps done")
    if options.many:
        seeds = round(options.many / per_seed)
        empty = options.folder / "empty"
        yield command("plan", empty, seeds, f"{seeds * per_seed:,} cells", max_seconds=120.0)


def planned(seeds: int) -> StudyPlan:
    return compile_study(parse_study(study_file(seeds), "toy.yaml"), {})


def study_file(seeds: int) -> str:
    return yaml.safe_dump({**TOY, "seeds": list(range(seeds))})


def command(name: str, home: Path, seeds: int, what: str, max_seconds: float = 10.0) -> Row:
    """Run an `lce` command; return its wall and CPU seconds and its peak memory."""
    file = home.with_name("study.yaml")
    file.write_text(study_file(seeds), encoding="utf-8")
    wall, cpu, megabytes, _ = run([*LCE, name, str(file)], home)
    time = {"wall s": wall, "limit": at_most(wall, max_seconds), "CPU s": cpu}
    memory = {"MB": megabytes, "limit, MB": at_most(megabytes, 500)}
    return {"command": f"`lce {name}`, {what}", **time, **memory}


if __name__ == "__main__":
    measure(__doc__, rows, cells=10_800, many=0)
