"""Measure planning of a large study: time, memory, and the number of listed folders.

The study is the toy study with so many seeds that it has about --cells cells. Its store contains
artifacts of every second seed, each with a real record and a file of one byte. Functions of
`lce_core` are timed in this process. Commands are timed as processes, with imports and peak memory,
on an empty store and on the half-finished one. With --many, `lce plan` is also timed for that many
cells on an empty store.

    python perf/planning.py [--cells 10800] [--many 100000] [--out docs/performance/planning.json]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from figures import command_line, publish

from flows.settings import STUDIES
from lce_core.store.artifacts import Store
from lce_core.store.identity import sha256_file
from lce_core.store.records import RECORD, FileEntry, Record, environment, sealed
from lce_core.store.steps import Step
from lce_core.study.plan import StudyPlan, compile_study
from lce_core.study.plan_diff import compare
from lce_core.study.progress import inspect
from lce_core.study.study_file import parse_study

TOY: dict[str, Any] = yaml.safe_load((STUDIES / "toy.yaml").read_text(encoding="utf-8"))
del TOY["expects"]  # not needed for planning
LIMIT_SECONDS = 10.0
LIMIT_MANY_SECONDS = 120.0
LIMIT_MEGABYTES = 500


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--cells", type=int, default=10_800, help="approximate number of cells")
    parser.add_argument("--many", type=int, default=0, help="also plan this number of cells")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lce-perf-") as folder:
        found = measure(Path(folder) / "home", options.cells, options.many)
    print(f"{found['cells']} cells, {found['done']} of {found['steps']} steps done\n")
    print("| what | wall s | CPU s | folders listed | MB |\n|---|--:|--:|--:|--:|")
    for what, row in found["figures"].items():
        rest = f"{row.get('listings', '-')} | {row.get('megabytes', '-')} |"
        print(f"| {what} | {row['seconds']:.2f} | {row['cpu']:.2f} | {rest}")
    print(f"\nlimits of the commands: {LIMIT_SECONDS:g} s and {LIMIT_MEGABYTES} MB")
    print(f"with --many 100000: {LIMIT_MANY_SECONDS:g} s")
    publish(found, options.out)


def measure(home: Path, num_cells: int, many: int) -> dict[str, Any]:
    """Return all figures, after checking that exactly the committed steps are found done."""
    store, figures, listings = Store(home), {}, count_listings()
    store.prepare()
    per_seed = len(planned(1).cells)
    seeds = round(num_cells / per_seed)

    def timed(what: str, action: Any) -> Any:
        before, wall, cpu = listings[0], time.perf_counter(), time.process_time()
        answer = action()
        figures[what] = {
            "seconds": time.perf_counter() - wall,
            "cpu": time.process_time() - cpu,
            "listings": listings[0] - before,
        }
        return answer

    plan = timed("compile the study", lambda: planned(seeds))
    timed("look up its steps, none done", lambda: inspect(plan, store, {}))
    figures["`lce plan`, none done"] = command(home, seeds)
    done = {p for p, step in plan.steps.items() if step.axes.get("seed", 0) % 2 == 0}
    for fingerprint in done:
        commit(store, plan.steps[fingerprint])
    fresh = Store(home)
    states = timed("look up its steps, half done", lambda: inspect(plan, fresh, {}))
    assert {p for p, state in states.items() if state.state == "done"} == done
    ids = {step.id for step in plan.steps.values()}
    diff = timed("find the reasons of missing steps", lambda: compare(plan, fresh, states, ids))
    assert len(diff.states) == len(plan.steps)
    assert not diff.orphans
    figures["`lce plan`, half done"] = command(home, seeds)
    figures["`lce status`, half done"] = command(home, seeds, "status")
    if many:
        empty = home.with_name("empty")
        for number in (many // 2, many):
            seeds_needed = round(number / per_seed)
            figures[f"`lce plan`, {seeds_needed * per_seed:,} cells"] = command(empty, seeds_needed)
    return {
        "figures": figures,
        "cells": len(plan.cells),
        "steps": len(plan.steps),
        "done": len(done),
        "environment": environment(),
    }


def planned(seeds: int) -> StudyPlan:
    return compile_study(parse_study(study_file(seeds), "toy.yaml"), {})


def study_file(seeds: int) -> str:
    return yaml.safe_dump({**TOY, "seeds": list(range(seeds))})


def command(home: Path, seeds: int, name: str = "plan") -> dict[str, float]:
    """Run an `lce` command; return its wall and CPU seconds and its peak memory."""
    file = home.with_name("study.yaml")
    file.write_text(study_file(seeds), encoding="utf-8")
    wall = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", "from lce.cli import main; main()", name, str(file)],
        env={**os.environ, "LCE_HOME": str(home)},
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"lce {name} ended with {process.returncode}"
    return {
        "seconds": time.perf_counter() - wall,
        "cpu": used.ru_utime + used.ru_stime,
        "megabytes": used.ru_maxrss // 1024,
    }


def commit(store: Store, step: Step) -> None:
    """Write an artifact of one byte with its record, without fsync."""
    folder = store.home / "artifacts" / step.folder
    folder.mkdir(parents=True)
    (folder / "a").write_text("a", encoding="utf-8")
    record = Record(
        kind=step.kind,
        name=step.name,
        fingerprint=step.fingerprint,
        spec=dict(step.spec),
        parents=dict(step.parents),
        lineage=dict(step.lineage),
        axes=dict(step.axes),
        files={"a": FileEntry(bytes=1, sha256=sha256_file(folder / "a"))},
        result={},
        environment=environment(),
        execution={},
        started_at="2026-11-22T00:00:00.000+00:00",
        finished_at="2026-11-22T00:00:01.000+00:00",
        seconds=1.0,
        attempts=1,
    )
    content = json.dumps(sealed(record.model_dump(mode="json")))
    (folder / RECORD).write_text(content, encoding="utf-8")


def count_listings() -> list[int]:
    """Return a list with one counter: the folders that this process has listed since this call."""
    count = [0]

    def hook(event: str, _: object) -> None:
        if event in ("os.listdir", "os.scandir"):
            count[0] += 1

    sys.addaudithook(hook)
    return count


if __name__ == "__main__":
    main()
