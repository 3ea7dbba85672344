"""Whatever becomes of a home's files, commands end in a sentence, and a run mends the scores.

Strategy: a finished home is changed at drawn places (`tests/support/odd_homes.py`), commands run
in it, then the study. A draw follows from its number, with which the test's id ends.
"""

import random
import re
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.draws import draws
from tests.support.forked_commands import Ended
from tests.support.odd_homes import CHANGES, places
from tests.support.ports import unused_port
from tests.support.studies import HANG_SECONDS, copied_home, lce, run_command, scores, write_study

Arguments = tuple[str, ...]

ENDLESS = {"dashboard": 15.0, "watch": 5.0}
"""Seconds for which a command runs that goes on until it is ended."""
SERVERS_EVERY = 6
"""In one draw of so many, servers are started too."""


@pytest.fixture(scope="module")
def cell(finished) -> str:
    """Return the id of a cell with prompts."""
    return next(path.name[-12:] for path in finished.glob("artifacts/cell/*-none-*passkey*-128-*"))


def thorough(
    number: int, study: str, cell: str, text: Arguments, folder: Path
) -> Iterator[list[str]]:
    """Return all commands that read a home."""
    yield from (
        ["plan", study, *text],
        ["status", study, *text],
        ["lock", study, "--file", str(folder / "study.lock"), *text],
        ["gc", "--dry-run"],
        ["sql", "FROM overview"],
        ["prompt", cell, "0", *text],
        ["claims", "tiny"],
        ["rebuild", "catalog"],
        ["down"],
        ["gc"],
        ["plan", study, "--json", "--power", *text],
        ["lock", study, "--check", "--file", str(folder / "study.lock"), *text],
        ["report", "tiny"],
        ["report", "tiny", "--format", "md"],
        ["rebuild", "mlflow"],
        ["doctor"],
        ["export", study, str(folder / "out"), "--select", "method=yarn,frozen=false", *text],
        ["verify", study, "--sample", "1", *text],
        ["watch", study, *text],
    )
    if number % SERVERS_EVERY == 0:
        yield ["up", "--port", str(unused_port()), "--mlflow-port", str(unused_port())]
        yield ["down"]
        yield ["dashboard", "--port", str(unused_port())]


def changed(home: Path, number: int, cell: str) -> list[tuple[str, str]]:
    """Changes a home as the draw of that number says; what was done to which path."""
    draw, done = random.Random(number), []
    for _ in range(draw.choice((1, 1, 2, 3))):
        rooms: dict[str, list[str]] = {}
        for path in places(home, cell):  # most lie below artifacts
            rooms.setdefault(path.split("/")[0], []).append(path)
        place, change = draw.choice(rooms[draw.choice(sorted(rooms))]), draw.choice(sorted(CHANGES))
        if (home / place).parent.is_dir() or place.split("/")[0] in ("progress", "services"):
            CHANGES[change](home / place)
            done.append((place, change))
    return done


def require_sentence(ended: Ended, what: str) -> None:
    printed = (
        f"{what}: code {ended.code} after {ended.seconds:.1f} s\n{ended.out[-500:]}\n{ended.err}"
    )
    assert ended.code in (0, 1, 2, 3), printed
    assert "Traceback" not in ended.err, printed
    assert "internal error" not in ended.err, printed
    if ended.code in (2, 3):
        assert len(re.findall(r"^lce: .*: got .*; expected .*; ", ended.err, re.M)) == 1, printed


def mended(home: Path, run: list[str], what: str) -> None:
    """Runs the study, moving away what its sentences name, until it is done."""
    for _ in range(4):
        ended = run_command(home, *run, seconds=HANG_SECONDS)
        require_sentence(ended, what)
        if ended.code == 0:
            return
        # "lce: PATH: got a file ...": what a user would do.
        named = re.search(rf"lce: ({re.escape(str(home))}/.+?): got ", ended.err)
        assert ended.code == 3, ended.err
        if named:
            path = Path(named[1])
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        else:
            shutil.rmtree(home / "mlflow", ignore_errors=True)
    pytest.fail(f"{what}: {ended.err}")


@pytest.mark.slow
@pytest.mark.timeout(7200)  # a score of commands and a run
@pytest.mark.drawn
@draws([1])
def test_no_state_of_a_home_stops_any_command_or_its_mending(
    number, finished, text, cell, tmp_path
):
    study, home = write_study(tmp_path), copied_home(finished, tmp_path / "home")
    what = f"draw {number}: {changed(home, number, cell)}"
    for command in thorough(number, study, cell, text, tmp_path):
        ended = run_command(home, *command, seconds=ENDLESS.get(command[0], HANG_SECONDS))
        if command[0] in ENDLESS and ended.code == -signal.SIGKILL:
            ended = replace(ended, code=0)
        require_sentence(ended, f"{what}: lce {' '.join(command)}")
    mended(home, ["worker", study, *text], what)
    assert scores(home) == scores(finished), what


@pytest.mark.slow
def test_a_run_with_its_server_names_what_it_cannot_use_or_replaces_it(finished, text, tmp_path):
    study, home = write_study(tmp_path), copied_home(finished, tmp_path / "home")
    # A run without missing steps starts no server, and only training writes to both logs.
    shutil.rmtree(home / "artifacts" / "finetune")
    shutil.rmtree(next((home / "artifacts" / "cell").glob("*-yarn-tuned-*")))
    for place, change in (("logs", "empty"), ("artifacts/cell", "a FIFO")):
        kept = (home / place).rename(tmp_path / "kept")
        CHANGES[change](home / place)
        printed = lce(home, "run", study, *text, status=3)
        assert f"{home / place}: got a file, or a link to a path that does not exist;" in printed
        assert "Traceback" not in printed
        (home / place).unlink()
        kept.rename(home / place)
    for place, change in (
        ("logs/temporary-server.log", "a FIFO"),
        ("logs/live-tracking.log", "a FIFO"),
        ("studies/tiny/plan.json", "deep JSON"),
        ("prefect", "a folder"),
    ):
        CHANGES[change](home / place)
    lce(home, "run", study, *text)
    assert scores(home) == scores(finished)
