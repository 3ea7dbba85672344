"""kill -9 at random moments, of any process of a run: nothing that was done is lost.

Strategy: one study is run over and over; each time one process is killed at a moment that a seeded
generator draws. A run whose driver was killed is started again in the same home and goes on; one
that got through has its scores compared and begins anew. A JUnit report (`--junitxml`) lists
what was killed.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import psutil
import pytest

from lce_core.store.artifacts import Store
from tests.faults.output import DUMPS
from tests.support.processes import marked, new_marker, playing, survivors
from tests.support.studies import TINY_STEPS, new_home, scores, start, wait_until, write_study

pytestmark = [pytest.mark.long, pytest.mark.timeout(1500)]

Arguments = tuple[str, ...]
TRIES = int(os.environ.get("LCE_KILLS", "6"))
"""Of each seed."""
VICTIMS = ("driver", "worker", "supervisor", "server")
WITHIN_SECONDS = 14.0
"""After its first process: a run that nobody disturbs takes as long on two free cores."""


def fingerprints(home: Path) -> set[str]:
    """Steps that are done, each with a record and files that agree with it."""
    store = Store(home)
    return {record.fingerprint for _, record in store.records()}


def kill_once(home: Path, arguments: Arguments, draw: random.Random) -> str:
    """Runs the study and kills one process of it; says what, when, and what was done by then."""
    marker, victim = new_marker(), draw.choice(VICTIMS)
    with start(home, *arguments, env=marked(home, marker)) as run:
        wait_until(lambda: playing(marker, "supervisor"))
        seconds = draw.uniform(0.0, WITHIN_SECONDS)
        time.sleep(seconds)
        found = [psutil.Process(run.pid)] if victim == "driver" else playing(marker, victim)
        hit = bool(found) and run.poll() is None
        if hit:
            with contextlib.suppress(psutil.NoSuchProcess):
                draw.choice(found).kill()
        before = fingerprints(home)
        output = run.communicate(timeout=300)[0]
    wait_until(lambda: not survivors(marker), 30)
    assert run.returncode == (-signal.SIGKILL if hit and victim == "driver" else 0), output
    assert before <= fingerprints(home)
    for word in DUMPS:
        assert word not in output, output
    return f"{victim} after {seconds:.1f} s, {len(before)} done" if hit else ""


def go_through(home: Path, finished: Path, arguments: Arguments) -> None:
    """Ends what was disturbed, and compares."""
    run = start(home, *arguments)
    output = run.communicate(timeout=300)[0]
    assert run.returncode == 0, output
    assert scores(home) == scores(finished)
    assert not list((home / "artifacts").glob("*/.attempt*"))


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5])
def test_whatever_is_killed_the_scores_are_those_of_an_undisturbed_run(
    seed: int,
    finished: Path,
    text: Arguments,
    tmp_path: Path,
    record_property: Callable[[str, str], None],
) -> None:
    draw, kills, homes = random.Random(seed), 0, count()
    arguments = ("run", write_study(tmp_path), *text)
    home = new_home(finished, tmp_path / f"home-{next(homes)}")
    while kills < TRIES:
        if what := kill_once(home, arguments, draw):
            kills += 1
            record_property("killed", what)
        if len(fingerprints(home)) == TINY_STEPS:
            go_through(home, finished, arguments)
            home = new_home(finished, tmp_path / f"home-{next(homes)}")
    go_through(home, finished, arguments)
