"""Measure how several hosts share a study: 24 steps of one second, two slots per host, one store.

A host is a process with its own host name, so that it checks the other hosts' leases by their
heartbeats. Each computes the same 24 units with the scheduling loop of `lce run` and `lce worker`,
in threads; a step sleeps, writes one file and commits. All hosts start together, and the measured
time ends when the last one finds nothing left to do. Before it prints, the script checks that each
step was computed once.

    python perf/orchestration.py [--out docs/performance/orchestration.json]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from figures import command_line, publish
from pulling_hosts import become_host, pull, run_hosts

from flows.runs.scheduling import UnitResult
from flows.settings import study_path
from lce_core.store.artifacts import Attempt, Store
from lce_core.store.records import environment
from lce_core.store.steps import make_step
from lce_core.study.plan import StudyPlan
from lce_core.study.study_file import load_study
from lce_core.study.units import Unit, dearest_first
from tasks.work_queue import Claim

NUM_STEPS, SLOTS = 24, 2
LIMITS = {1: 13.5, 2: 7.5, 4: 4.5}
"""Maximum seconds, by number of hosts. The sleeps alone take 12, 6 and 3."""
BEFORE = {1: 12.9, 2: 12.9, 4: 13.8}
"""Measured seconds when all runs started units in the same order and waited for leases."""


@dataclass(frozen=True)
class _Spec:
    number: int
    kind: str = "held_out"  # any kind that is a unit by itself
    version: int = 1

    def identity(self) -> dict[str, Any]:
        return {"number": self.number}


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--host", help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.host:
        print(json.dumps(be_a_host(options.host, options.home)))
        return
    figures = {number: measure(number) for number in LIMITS}
    print("| hosts | measured | limit | before |\n|--:|--:|--:|--:|")
    for number, limit in LIMITS.items():
        print(f"| {number} | {figures[number]:.1f} s | {limit} s | {BEFORE[number]} s |")
    publish({"seconds": figures, "environment": environment()}, options.out)


def measure(num_hosts: int) -> float:
    """Run `num_hosts` hosts; return the seconds until the last one has finished."""
    with tempfile.TemporaryDirectory(prefix="lce-perf-") as folder:
        home = Path(folder)
        results = run_hosts(__file__, num_hosts, home)
        times = Counter(name for host in results for name in host["computed"])
        assert sorted(times.values()) == [1] * NUM_STEPS, times
        assert len(list(Store(home).records())) == NUM_STEPS
    return max(host["seconds"] for host in results)


def be_a_host(name: str, home: Path) -> dict[str, Any]:
    """Compute until no unit is left; return the seconds and the names of the computed steps."""
    become_host(name)
    store, computed = Store(home), []
    steps = [make_step(_Spec(number), f"second-{number}", {}) for number in range(NUM_STEPS)]
    units = [Unit(step.name, step.kind, (step,)) for step in steps]
    seconds = {step.fingerprint: 1.0 for step in steps}
    plan = StudyPlan(load_study(study_path("smoke")), {}, ())
    ordered = dearest_first(units, plan, seconds, name)

    def sleep(attempt: Attempt) -> dict[str, Any]:
        time.sleep(1.0)
        (attempt.out / "slept").write_text("one second", encoding="utf-8")
        return {}

    def compute(claim: Claim, end: Callable[[UnitResult], None]) -> None:
        (step,) = claim.unit.steps
        outcome = store.ensure(step, sleep, {})
        if outcome and outcome.status == "computed":
            computed.append(step.name)
        end({"held": [] if outcome else [step.fingerprint]})

    return {"seconds": pull(name, home, SLOTS, ordered, seconds, compute), "computed": computed}


if __name__ == "__main__":
    main()
