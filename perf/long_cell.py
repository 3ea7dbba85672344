"""Measure how several slots and hosts share one long cell: 24 ranges of one second in one store.

A host is a process with its own host name, as in `perf/orchestration.py`, which computes with the
scheduling loop of `lce run` and `lce worker` and one thread per slot. Only the model is replaced:
scoring a range sleeps for a second. The measured time ends when the last host finds nothing left to
do. Before it prints, the script checks that each range was scored once, and that the cell contains
all ranges in order.

    python perf/long_cell.py [--out docs/performance/long_cell.json]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from figures import command_line, publish
from numpy.typing import NDArray
from pulling_hosts import become_host, pull, run_hosts

from flows.runs.scheduling import UnitResult
from lce_core.evaluation import likelihood, window_ranges
from lce_core.evaluation.loss_cache import TokenScores
from lce_core.evaluation.window_ranges import WindowRanges, assist
from lce_core.evaluation.windows import Stream, Windows
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from lce_core.models import MODELS
from lce_core.store.artifacts import Attempt, Store
from lce_core.store.records import environment
from lce_core.store.steps import make_step
from lce_core.study.units import Unit
from tasks.work_queue import Claim

NUM_RANGES, LENGTH = 24, 8
LIMITS = {(1, 1): 25.5, (1, 2): 13.5, (2, 2): 7.5}
"""Maximum seconds, by number of hosts and of slots per host. The sleeps alone take 24, 12 and 6."""


@dataclass(frozen=True)
class _Spec:
    kind: str = "cell"
    version: int = 1

    def identity(self) -> dict[str, Any]:
        return {"ranges": NUM_RANGES}


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--host", help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--slots", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.host:
        print(json.dumps(be_a_host(options.host, options.home, options.slots)))
        return
    figures = {case: measure(*case) for case in LIMITS}
    print("| hosts | slots of each | measured | limit |\n|--:|--:|--:|--:|")
    for (hosts, slots), limit in LIMITS.items():
        print(f"| {hosts} | {slots} | {figures[hosts, slots]:.1f} s | {limit} s |")
    seconds = {f"{hosts} x {slots}": figures[hosts, slots] for hosts, slots in LIMITS}
    publish({"seconds": seconds, "environment": environment()}, options.out)


def measure(num_hosts: int, slots: int) -> float:
    """Return the seconds until the last host has finished."""
    with tempfile.TemporaryDirectory(prefix="lce-perf-") as folder:
        home = Path(folder)
        results = run_hosts(__file__, num_hosts, home, "--slots", str(slots))
        scored = sorted(first for host in results for first in host["scored"])
        assert scored == list(range(NUM_RANGES)), scored
        ((cell, _),) = Store(home).records()
        assert np.load(cell / "nll.npy")[:, 0].tolist() == list(range(NUM_RANGES))
        assert not list((home / "progress").iterdir()), "ranges of a cell that is done"
    return max(host["seconds"] for host in results)


def be_a_host(name: str, home: Path, slots: int) -> dict[str, Any]:
    """Score ranges until the cell is done; return the seconds and the ranges of this host."""
    become_host(name)
    window_ranges.NUM_RANGES = NUM_RANGES
    scored: list[int] = []

    def sleep(_: object, windows: NDArray[np.integer], **__: object) -> TokenScores:
        time.sleep(1.0)
        (first,) = windows[:, 0].tolist()
        scored.append(first)
        return TokenScores(np.full((1, LENGTH - 1), first, np.float32), np.ones((1, LENGTH), bool))

    likelihood.window_scores = sleep  # type: ignore[assignment]
    base = MODELS.parse({"name": "toy_llama"}, "perf")
    method = METHODS.parse({"name": "none"}, "perf")
    model = extend(base.initialise(0).eval(), base, method, target=512)
    store, step = Store(home), make_step(_Spec(), "long", {}, {"benchmark": "perplexity"})
    tokens = np.repeat(np.arange(NUM_RANGES, dtype=np.uint32), LENGTH)
    windows = Windows(Stream(tokens), np.arange(NUM_RANGES) * LENGTH, LENGTH)

    def score(attempt: Attempt) -> dict[str, Any]:
        ranges = WindowRanges(store.parts(step), model, batch_tokens=LENGTH, seconds=0.0)
        found = ranges.scores(windows, NUM_RANGES, list)
        np.save(attempt.out / "nll.npy", found.nll)
        return {}

    def compute(claim: Claim, end: Callable[[UnitResult], None]) -> None:
        if claim.unit.assists:
            end({"computed": assist(store.parts(step), model), "held": []})
            return
        outcome = store.ensure(step, score, {})
        end({"held": [] if outcome else [step.fingerprint]})

    unit = Unit("long", step.kind, (step,))
    seconds = pull(name, home, slots, [unit], {step.fingerprint: 24.0}, compute)
    return {"seconds": seconds, "scored": scored}


if __name__ == "__main__":
    main()
