r"""Texts that would steer a terminal, as it gets them: nothing raw but rich's own sequences.

Drawn texts through the one function, and processes on a real pseudo-terminal.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.settings import STUDIES
from flows.terminal import Terminal
from lce_core.terminal import Guarded, visible
from tasks.own_code import child_environment
from tests.support.catalogs.answered_catalog import Answered, written
from tests.support.catalogs.sample_store import compared

STEERING = (
    "\x1b]0;title\x07", "\x1b]52;c;ZWNobw==\x07", "\x1b[2J", "\x1b[8m", "\x1b[31m", "\x1bc",
    "\x9b2J", "\x9d0;title\x9c", "\x90q\x9c", "\x08\x08", "\x7f", "\rover", "\u202egnp.exe",
    "\u2066a\u2069", "\u200e", "\u200b", "\u2028", "\U000e0041",
)  # fmt: skip
ALL = "".join(STEERING)
RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069]")
OF_RICH = re.compile(r"\x1b\[[0-9;]*m")
LCE = "import sys; from lce.cli import main; sys.argv[0] = 'lce'; main()"


def on_terminal(command: list[str], **environment: str) -> str:
    """What a command sends to the terminal that it runs on, carriage returns of lines removed."""
    ours, its = os.openpty()
    process = subprocess.Popen(
        command, stdin=its, stdout=its, stderr=its, env={**child_environment(), **environment}
    )
    os.close(its)
    said = b""
    try:
        while part := os.read(ours, 1 << 16):
            said += part
    except OSError:  # the other end is closed
        pass
    process.wait()
    os.close(ours)
    return said.decode().replace("\r\n", "\n")


def lce(home: Path, *arguments: str) -> str:
    return on_terminal([sys.executable, "-c", LCE, *arguments], LCE_HOME=str(home))


@given(st.text())
def test_of_any_text_nothing_is_left_that_steers_and_the_rest_stays(text: str) -> None:
    shown = visible(text)
    assert visible(shown) == shown
    assert not RAW.search(shown)
    shown.encode()
    for character in shown:
        assert character in "\t\n\u200c\u200d" or unicodedata.category(character) != "Cc"
    if not RAW.search(text) and all(unicodedata.category(one) not in ("Cf", "Cs") for one in text):
        assert shown == text


@given(st.text(alphabet="aé\t\n ✓漢👩‍🚀‌नि"))
def test_text_of_any_script_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_escapes_are_those_that_people_know() -> None:
    assert visible("\x1b]0;x\x07\x9b\u202e\U000e0041\udc80") == (
        r"\x1b]0;x\x07\x9b\u202e\U000e0041\udc80"
    )


@given(st.text() | st.sampled_from(STEERING))
def test_a_console_sends_no_sequence_but_its_own(text: str) -> None:
    stream = io.StringIO()
    console = Terminal(file=stream, force_terminal=True, color_system="truecolor", width=80)
    console.print(text, style="bold red")
    assert not RAW.search(OF_RICH.sub("", stream.getvalue()))


@pytest.mark.parametrize("text", ["[/red]", "[bold]a[/bold]", "/tmp/[/red]/a.yaml", ":smile:"])
def test_a_console_takes_no_foreign_text_for_markup(text: str) -> None:
    stream = io.StringIO()
    Terminal(file=stream, width=80).print(text)
    assert stream.getvalue() == f"{text}\n"


def test_bars_of_libraries_move_and_all_else_is_shown() -> None:
    stream = io.StringIO()
    guarded = Guarded(stream, bars=True)
    for text in ("\r50%", "\x1b[A", "a\rb", "\x1b[2J"):
        guarded.write(text)
    assert stream.getvalue() == "\r50%\x1b[Aa\\x0db\\x1b[2J"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    with duckdb.connect(str(folder / "catalog.duckdb")) as connection:
        connection.execute("CREATE TABLE answers (answer VARCHAR)")
        connection.executemany("INSERT INTO answers VALUES (?)", [[one] for one in STEERING])
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_answers_of_sql_do_not_steer_a_terminal(home: Path, form: str) -> None:
    said = lce(home, "sql", "FROM answers", "--format", form)
    assert not RAW.search(said)
    assert r"\x1b]0;title" in said.replace(r"\u001b", r"\x1b")
    assert r"\u202egnp.exe" in said


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "json"])
def test_redirected_data_are_unchanged(home: Path, form: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LCE, "sql", "FROM answers", "--format", form],
        env={**child_environment(), "LCE_HOME": str(home)},
        capture_output=True,
        check=True,
    )
    text = done.stdout.decode()
    rows = (
        [row["answer"] for row in json.loads(text)]
        if form == "json"
        else [row[0] for row in csv.reader(io.StringIO(text, newline=""))][1:]
    )
    assert rows == list(STEERING)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["plan", "status", "run"])
def test_errors_that_quote_a_file_do_not_steer_a_terminal(
    home: Path, tmp_path: Path, command: str
) -> None:
    study = tmp_path / f"{ALL}[/red].yaml"  # a folder, too
    study.parent.mkdir()
    smoke = (STUDIES / "smoke.yaml").read_text(encoding="utf-8")
    study.write_text(smoke.replace("seeds: [0]", "seeds: [x]"), encoding="utf-8")
    said = lce(home, command, str(study))
    assert not RAW.search(said)
    assert r"\x1b]0;title\x07" in said
    assert "a valid integer" in said


@pytest.mark.slow
@pytest.mark.parametrize("command", ["report", "claims"])
def test_errors_that_quote_a_missing_file_do_not_steer_a_terminal(
    home: Path, tmp_path: Path, command: str
) -> None:
    said = lce(home, command, str(tmp_path / f"{ALL}[/red].yaml"))
    assert not RAW.search(said)
    assert r"\x1b]0;title\x07" in said


@pytest.mark.slow
def test_expectations_of_a_foreign_study_do_not_steer_a_terminal(tmp_path: Path) -> None:
    cells = [
        Answered(name, True, 0, "passkey", "single", 512, [1.0] * n + [0.0] * (40 - n), n / 40)
        for name, n in (("none", 5), ("yarn", 35))
    ]
    comparison = compared(0, f"a {ALL} b", ("yarn", True), "passkey", 512)
    written(tmp_path / "catalog.duckdb", cells, expects=[comparison])
    said = lce(tmp_path, "claims", "s")
    assert not RAW.search(said)
    assert r"\x1b]0;title\x07" in said


@pytest.mark.slow
def test_what_typer_says_and_tracebacks_do_not_steer_a_terminal(home: Path) -> None:
    said = lce(home, "plan", "smoke", f"--{ALL}")
    assert not RAW.search(OF_RICH.sub("", said))
    raising = (
        "import sys; from lce_core.terminal import guard_terminal; guard_terminal();"
        " raise OSError(sys.argv[1])"
    )
    said = on_terminal([sys.executable, "-c", raising, ALL])
    assert "OSError" in said
    assert not RAW.search(said)


LIVE = """
import sys
from lce_core.terminal import guard_terminal
guard_terminal()
from rich.live import Live
from rich.text import Text
from flows.terminal import Terminal
console = Terminal()
with Live(console=console, auto_refresh=False, transient=True) as live:
    live.update(Text(sys.argv[1]), refresh=True)
    print("printed")
    print(sys.argv[1])
    live.update(Text("last"), refresh=True)
"""


@pytest.mark.slow
def test_a_live_view_moves_and_shows_foreign_text_harmlessly() -> None:
    said = on_terminal([sys.executable, "-c", LIVE, ALL], TERM="xterm")
    assert "printed" in said
    assert "last" in said
    assert not RAW.search(re.sub(r"\x1b\[[0-9;?]*[mAKlh]|\r", "", said))
