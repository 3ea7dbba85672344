"""Measure how hosts share one store: 24 steps, and the 24 ranges of a long cell, a second each.

A host is a process with its own host name, so that it checks the other hosts' leases by their
heartbeats. It computes in threads with the scheduling loop of `lce run`; only the work is replaced:
a step sleeps and commits one file, and scoring a range sleeps. All hosts start together, and the
measured time ends when the last one finds nothing left to do. Before a row is printed, the script
checks that each step or range was computed once, and that the cell contains all ranges in order.
"""

import itertools
import multiprocessing
import socket
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from measuring import Row, at_most, measure

from flows.runs.scheduling import Scheduler, UnitResult
from flows.settings import make_execution, study_path
from lce_core.contracts.benchmark_cases import toy_model
from lce_core.evaluation import likelihood, long_cell
from lce_core.evaluation.long_cell import LongCell, assist
from lce_core.evaluation.windows import Stream, TokenScores, Windows
from lce_core.store.artifacts import Attempt, Store
from lce_core.store.records import environment
from lce_core.store.steps import make_step
from lce_core.study.plan import StudyPlan
from lce_core.study.study_file import load_study
from lce_core.study.units import Unit, dearest_first
from tasks.slots import Slot
from tasks.work_queue import Claim
from tasks.workers import Pool

NUMBER, LENGTH = 24, 8
"""Steps or ranges, and tokens of a range."""
MAX_SECONDS = 600
"""A busy machine needs minutes to import torch in every host."""
Compute = Callable[[Claim], UnitResult]
Work = Callable[[str, Store, list[int]], tuple[list[Unit], Compute]]
"""Returns the units of a host and how to compute one; the list receives the computed numbers."""


def steps(host: str, store: Store, computed: list[int]) -> tuple[list[Unit], Compute]:
    # Any kind that is a unit by itself.
    made = [
        make_step("held_out", 1, {"number": number}, f"step-{number}", {})
        for number in range(NUMBER)
    ]
    units = [Unit(step.name, step.kind, (step,)) for step in made]
    plan = StudyPlan(load_study(study_path("smoke")), {}, ())
    seconds = dict.fromkeys((step.fingerprint for step in made), 1.0)

    def sleep(attempt: Attempt) -> dict[str, Any]:
        time.sleep(1.0)
        (attempt.out / "slept").write_text("one second", encoding="utf-8")
        computed.append(attempt.step.spec["number"])
        return {}

    def compute(claim: Claim) -> UnitResult:
        (step,) = claim.unit.steps
        return {"held": [step.fingerprint] if store.ensure(step, sleep, {}) == "held" else []}

    return dearest_first(units, plan, seconds, host), compute


def ranges(host: str, store: Store, computed: list[int]) -> tuple[list[Unit], Compute]:  # noqa: ARG001
    long_cell.NUM_RANGES = NUMBER

    def sleep(_: object, windows: Any, **__: object) -> TokenScores:
        time.sleep(1.0)
        (first,) = windows[:, 0].tolist()
        computed.append(first)
        return TokenScores(np.full((1, LENGTH - 1), first, np.float32), np.ones((1, LENGTH), bool))

    likelihood.window_scores = sleep
    model = toy_model()
    step = make_step("cell", 1, {"number": NUMBER}, "long", {}, {"benchmark": "perplexity"})
    tokens = np.repeat(np.arange(NUMBER, dtype=np.uint32), LENGTH)
    windows = Windows(Stream(tokens), np.arange(NUMBER) * LENGTH, LENGTH)

    def score(attempt: Attempt) -> dict[str, Any]:
        cell = LongCell(store.parts(step), model, batch_tokens=LENGTH, seconds=0.0)
        np.save(attempt.out / "nll.npy", cell.scores(windows, NUMBER, list).nll)
        return {}

    def compute(claim: Claim) -> UnitResult:
        if claim.unit.assists:
            return {"computed": assist(store.parts(step), model), "held": []}
        return {"held": [step.fingerprint] if store.ensure(step, score, {}) == "held" else []}

    return [Unit("long", step.kind, (step,))], compute


CASES: tuple[tuple[Work, int, int, float], ...] = (
    (steps, 1, 2, 13.5),
    (steps, 2, 2, 7.5),
    (steps, 4, 2, 4.5),
    (ranges, 1, 1, 25.5),
    (ranges, 1, 2, 13.5),
    (ranges, 2, 2, 7.5),
)
"""Work, number of hosts, slots of each host, and maximum seconds. Sleeping alone takes 24 seconds
divided by the number of slots."""


def rows(options: Namespace) -> Iterator[Row]:
    spawning = multiprocessing.get_context("spawn")
    for number, (work, num_hosts, slots, limit) in enumerate(CASES):
        home = options.folder / str(number)
        Store(home).prepare()
        ready, results = spawning.Barrier(num_hosts), spawning.Queue()
        common = (work, home, slots, ready, results)
        names = [f"host-{n}" for n in range(num_hosts)]
        hosts = [spawning.Process(target=be_a_host, args=(name, *common)) for name in names]
        for host in hosts:
            host.start()
        try:
            found = [results.get(timeout=MAX_SECONDS) for _ in hosts]
        finally:
            for host in hosts:
                host.kill()
        seconds, computed = zip(*found, strict=True)
        assert sorted(itertools.chain(*computed)) == list(range(NUMBER)), computed
        artifacts = [folder for folder, _ in Store(home).records()]
        assert len(artifacts) == (NUMBER if work is steps else 1)
        if work is ranges:
            assert np.load(artifacts[0] / "nll.npy")[:, 0].tolist() == list(range(NUMBER))
            assert not list((home / "progress").iterdir()), "ranges of a cell that is done"
        figures = {"work": work.__name__, "hosts": num_hosts, "slots of each": slots}
        yield {**figures, "seconds": max(seconds), "limit": at_most(max(seconds), limit)}


def be_a_host(name: str, work: Work, home: Path, slots: int, ready: Any, results: Any) -> None:
    """Compute until no unit is left; pass on the seconds and the computed numbers."""
    socket.gethostname = lambda: name  # the other hosts treat its leases as foreign
    computed: list[int] = []
    units, compute = work(name, Store(home), computed)
    predicted = {step.fingerprint: NUMBER / len(units) for unit in units for step in unit.steps}

    def submit(claim: Claim, _: Slot, end: Callable[[UnitResult], None]) -> None:
        threading.Thread(target=lambda: end(compute(claim))).start()

    execution = make_execution({"home": home, "slots": slots, "device": "cpu"})
    environment()  # fill its cache now, because the first call takes long
    ready.wait(timeout=MAX_SECONDS)
    begun = time.monotonic()
    with Pool(execution) as pool:
        summary = Scheduler(units, set(), pool, mock.Mock(), submit, predicted).run()
    assert not summary.failures
    results.put((time.monotonic() - begun, computed))


if __name__ == "__main__":
    measure(__doc__, rows)
