"""The cost of planning a half-finished study: time, memory, and the number of listed folders.

The toy study's rows and columns with as many seeds as give the asked number of cells, in a store
that holds the artifacts of every second seed: records as a run writes them, around files of one
byte. The figures of `lce_core` are of this process; those of commands are whole, with imports and
the most memory that they took, on an empty store and on the half done one, also of as many cells
more as --many says, of which none is done. The text is the standard library's.

    python perf/planning.py [--cells 10800] [--many 100000] [--out docs/performance/planning.json]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

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
del TOY["expects"]  # they name methods that this leaves out
LIMIT_SECONDS = 10.0
LIMIT_MANY_SECONDS = 120.0
LIMIT_MEGABYTES = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cells", type=int, default=10_800, help="about how many cells")
    parser.add_argument("--many", type=int, default=0, help="also plan so many; 0 for no")
    parser.add_argument("--out", type=Path, help="also write the figures as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lce-perf-") as folder:
        found = measure(Path(folder) / "home", options.cells, options.many)
    print(f"{found['cells']} cells, {found['done']} of {found['steps']} steps done\n")
    print("| what | wall s | CPU s | folders listed | MB |\n|---|--:|--:|--:|--:|")
    for what, row in found["figures"].items():
        rest = f"{row.get('listings', '-')} | {row.get('megabytes', '-')} |"
        print(f"| {what} | {row['seconds']:.2f} | {row['cpu']:.2f} | {rest}")
    where = found["environment"]
    print(f"\n{where['cpu']}, {where['cpu_count']} cores, {where['git']}")
    print(f"limits of the commands: {LIMIT_SECONDS:g} s and {LIMIT_MEGABYTES} MB")
    print(f"with --many 100000: {LIMIT_MANY_SECONDS:g} s")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def measure(home: Path, num_cells: int, many: int) -> dict[str, Any]:
    """All figures, after checking that exactly what is there is found done."""
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
    timed("look its steps up, none done", lambda: inspect(plan, store, {}))
    figures["`lce plan`, none done"] = command(home, seeds)
    done = {p for p, step in plan.steps.items() if step.axes.get("seed", 0) % 2 == 0}
    for print_ in done:
        commit(store, plan.steps[print_])
    fresh = Store(home)
    states = timed("look its steps up, half done", lambda: inspect(plan, fresh, {}))
    assert {p for p, state in states.items() if state.state == "done"} == done
    ids = {step.id for step in plan.steps.values()}
    diff = timed("explain what is to do", lambda: compare(plan, fresh, states, ids))
    assert len(diff.states) == len(plan.steps)
    assert not diff.orphans
    figures["`lce plan`, half done"] = command(home, seeds)
    figures["`lce status`, half done"] = command(home, seeds, "status")
    if many:
        empty = home.with_name("empty")
        for number in (many // 2, many):
            asked = round(number / per_seed)
            figures[f"`lce plan`, {asked * per_seed:,} cells"] = command(empty, asked)
    return {
        "figures": figures,
        "cells": len(plan.cells),
        "steps": len(plan.steps),
        "done": len(done),
        "environment": environment(),
    }


def planned(seeds: int) -> StudyPlan:
    """Plan the toy study with `seeds` seeds."""
    return compile_study(parse_study(study_file(seeds), "toy.yaml"), {})


def study_file(seeds: int) -> str:
    return yaml.safe_dump({**TOY, "seeds": list(range(seeds))})


def command(home: Path, seeds: int, name: str = "plan") -> dict[str, float]:
    """Seconds and memory of a command with its imports."""
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
    """Commit an artifact of one byte with its record, without a run's waiting for the disk."""
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
    """One number, which grows with every folder that this process lists."""
    count = [0]

    def hook(event: str, _: object) -> None:
        if event in ("os.listdir", "os.scandir"):
            count[0] += 1

    sys.addaudithook(hook)
    return count


if __name__ == "__main__":
    main()
