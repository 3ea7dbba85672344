"""kill -9 at random moments, of any process of a run: nothing that was done is lost.

Strategy: one study is run over and over; each time two processes are killed at moments that a
seeded generator draws, or its driver alone, after which the next run continues. A finished run's
scores are compared. A JUnit report (`--junitxml`) lists what was killed.
"""

import contextlib
import random
import signal
import subprocess
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import psutil
import pytest

from lce_core.store.artifacts import Store
from tests.support.draws import draws
from tests.support.processes import marked, new_marker, playing, require_no_dump, survivors
from tests.support.studies import (
    HANG_SECONDS,
    TINY_STEPS,
    ended,
    new_home,
    scores,
    start,
    wait_until,
    write_study,
)

pytestmark = pytest.mark.slow

Arguments = tuple[str, ...]
TRIES = 4
"""Kills of each draw, at least."""
VICTIMS = ("driver", "worker", "supervisor", "server")
BEGINNING_SECONDS, ENDING_SECONDS = 10.0, 8.0
"""Of a run that nobody disturbs on two free cores; its steps take seven seconds between them."""


def fingerprints(home: Path) -> set[str]:
    """Steps that are done, each with a record and files that agree with it."""
    store = Store(home)
    return {record.fingerprint for _, record in store.records()}


def await_moment(moment: float, home: Path, run: subprocess.Popen[str], began: float) -> str:
    """Waits for a moment of a run, and says which it is.

    Args:
      moment: from -1, where the run's first process is there, over 0, where its first step is
        computed, and 1, where all are done, to 2, where a run that nobody disturbs has ended.
      home: the run's.
      run: its driver; nobody waits longer than it lives.
      began: what the clock said when its first process was there.
    """
    if moment < 0:
        seconds = (1 + moment) * BEGINNING_SECONDS
        time.sleep(max(began + seconds - time.monotonic(), 0.0))
        return f"{seconds:.1f} s after the beginning"
    there = len(fingerprints(home))
    wanted, rest = divmod(min(moment, 1.0) * (TINY_STEPS - there), 1.0)
    wait_until(lambda: len(fingerprints(home)) >= there + wanted or run.poll() is not None)
    seconds = rest if moment < 1 else (moment - 1) * ENDING_SECONDS
    time.sleep(seconds)
    return f"{seconds:.1f} s after step {there + wanted:.0f}"


def disturbed(home: Path, arguments: Arguments, draw: random.Random) -> tuple[list[str], bool]:
    """Runs the study and kills two processes of it, or its driver alone.

    Two kills leave each unit the last of its three attempts. A driver that is already going when
    it is hit goes as it would have: its status says whether it was killed.

    Returns:
      What was killed and when, and whether the run got through.
    """
    marker, hits, done = new_marker(), list[str](), set[str]()
    moments, victim = sorted(draw.uniform(-1.0, 2.0) for _ in range(2)), ""
    with start(home, *arguments, env=marked(home, marker)) as run:
        # A run after a kill at the very end finds nothing to do, and starts no server.
        wait_until(lambda: playing(marker, "supervisor") or run.poll() is not None)
        began = time.monotonic()
        for moment in moments:
            victim = draw.choice(VICTIMS)
            when = await_moment(moment, home, run, began)
            found: Sequence[psutil.Process | subprocess.Popen[str]] = (
                [run] if victim == "driver" else playing(marker, victim)
            )
            if not found or run.poll() is not None:
                continue
            with contextlib.suppress(psutil.NoSuchProcess):
                draw.choice(found).kill()
            done = fingerprints(home)
            hits.append(f"{victim} {when}")
            if victim == "driver":
                break
        output = run.communicate(timeout=HANG_SECONDS)[0]
    wait_until(lambda: not survivors(marker))
    assert run.returncode in ((0, -signal.SIGKILL) if victim == "driver" else (0,)), output
    assert done <= fingerprints(home)
    require_no_dump(output)
    return hits, run.returncode == 0


def compare(home: Path, finished: Path) -> None:
    """What a run that got through left, with what an undisturbed one leaves."""
    assert len(fingerprints(home)) == TINY_STEPS
    assert scores(home) == scores(finished)
    assert not list((home / "artifacts").glob("*/.attempt*"))


@pytest.mark.timeout(7200)  # several whole runs
@pytest.mark.drawn
@draws([1])
def test_whatever_is_killed_the_scores_are_those_of_an_undisturbed_run(
    number, finished, migrated, text, tmp_path, record_property
):
    draw, killed, through, homes = random.Random(number), 0, True, count()
    arguments = ("run", write_study(tmp_path), *text)
    while killed < TRIES:
        if through:
            home = new_home(migrated, tmp_path / f"home-{next(homes)}")
        hits, through = disturbed(home, arguments, draw)
        for hit in hits:
            record_property("killed", hit)
        killed += len(hits)
        if through:
            compare(home, finished)
    if not through:
        run = start(home, *arguments)
        ended(run)
        compare(home, finished)
