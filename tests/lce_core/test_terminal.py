"""Texts that would steer a terminal: drawn ones, and processes on a real pseudo-terminal."""

import csv
import io
import json
import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import click
import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.settings import STUDIES
from flows.terminal import Terminal
from lce_core.environment import for_child
from lce_core.terminal import Guarded, visible
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
COMMANDS = """
import json, sys
from lce.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["lce", *arguments]
    try:
        main()
    except SystemExit:
        pass
    print("END OF COMMAND", flush=True)
"""
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
print("END OF LIVE VIEW", file=sys.stderr)
raise OSError(sys.argv[1])
"""


def environment(**own: str) -> dict[str, str]:
    """A terminal of 80 columns and colours, whatever that of the tests is."""
    mine = {
        name: value
        for name, value in for_child(os.environ).items()
        if name not in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "LINES")
    }
    return mine | {"TERM": "xterm", "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"} | own


def on_terminal(code: str, argument: str, **own: str) -> str:
    ours, its = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code, argument],
        stdin=its, stdout=its, stderr=its, env=environment(**own),
    )  # fmt: skip
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


@given(st.text())
def test_of_any_text_nothing_is_left_that_steers_and_the_rest_stays(text):
    shown = visible(text)
    assert visible(shown) == shown
    assert not RAW.search(shown)
    shown.encode()
    for character in shown:
        assert character in "\t\n\u200c\u200d" or unicodedata.category(character) != "Cc"
    if not RAW.search(text) and all(unicodedata.category(one) not in ("Cf", "Cs") for one in text):
        assert shown == text


@given(st.text(alphabet="aé\t\n ✓漢👩‍🚀‌नि"))
def test_text_of_any_script_stays_as_it_is(text):
    assert visible(text) == text


@given(st.text() | st.sampled_from(STEERING))
def test_a_console_sends_no_sequence_but_its_own(text):
    stream = io.StringIO()
    console = Terminal(file=stream, force_terminal=True, color_system="truecolor", width=80)
    console.print(text, style="bold red")
    assert not RAW.search(OF_RICH.sub("", stream.getvalue()))


@pytest.mark.parametrize("text", ["[/red]", "[bold]a[/bold]", "/tmp/[/red]/a.yaml", ":smile:"])
def test_a_console_takes_no_foreign_text_for_markup(text):
    stream = io.StringIO()
    Terminal(file=stream, width=80).print(text)
    assert stream.getvalue() == f"{text}\n"


def test_bars_of_libraries_move_and_all_else_is_shown():
    stream = io.StringIO()
    guarded = Guarded(stream, bars=True)
    for text in ("\r50%", "\x1b[A", "a\rb", "\x1b[2J"):
        guarded.write(text)
    assert stream.getvalue() == "\r50%\x1b[Aa\\x0db\\x1b[2J"


def test_no_library_reaches_the_bytes_behind_the_guard(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="backslashreplace")
    monkeypatch.setattr(sys, "stderr", Guarded(stream))
    click.echo(ALL, err=True)  # looks for the bytes, so as to write them in UTF-8
    stream.flush()
    assert not RAW.search(stream.buffer.getvalue().decode())


def catalog(folder: Path) -> Path:
    """A home whose catalog has foreign texts as answers, and in the expectations of a study."""
    cells = [
        Answered(name, True, 0, "passkey", "single", 512, [1.0] * n + [0.0] * (40 - n), n / 40)
        for name, n in (("none", 5), ("yarn", 35))
    ]
    comparison = compared(0, f"a {ALL} b", ("yarn", True), "passkey", 512)
    written(folder / "catalog.duckdb", cells, expects=[comparison])
    with duckdb.connect(str(folder / "catalog.duckdb")) as connection:
        connection.execute("CREATE TABLE foreign_texts (answer VARCHAR)")
        rows = [[one] for one in STEERING]
        connection.executemany("INSERT INTO foreign_texts VALUES (?)", rows)
    return folder


@pytest.mark.slow
def test_commands_do_not_let_foreign_text_steer_a_terminal(tmp_path):
    study = tmp_path / f"{ALL}[/red].yaml"  # a folder, too
    study.parent.mkdir()
    smoke = (STUDIES / "smoke.yaml").read_text(encoding="utf-8")
    study.write_text(smoke.replace("seeds: [0]", "seeds: [x]"), encoding="utf-8")
    queries = [["sql", "FROM foreign_texts", "--format", form] for form in ("table", "csv", "json")]
    wrong = [[command, str(study)] for command in ("plan", "status", "run")]
    missing = [[name, str(study.with_name("missing.yaml"))] for name in ("report", "claims")]
    commands = [*queries, *wrong, *missing, ["claims", "s"], ["plan", "smoke", f"--{ALL}"]]
    home = str(catalog(tmp_path))
    said = on_terminal(COMMANDS, json.dumps(commands), LCE_HOME=home).split("END OF COMMAND\n")
    assert len(said) == len(commands) + 1
    for command, shown in zip(commands, said[:-1], strict=True):
        # Typer colours its own errors.
        shown = OF_RICH.sub("", shown) if command in commands[-1:] else shown
        assert not RAW.search(shown), command
        assert r"\x1b]0;title" in shown.replace(r"\u001b", r"\x1b"), command
    assert all(r"\u202egnp.exe" in shown for shown in said[:3])
    assert all("a valid integer" in shown for shown in said[3:6])


@pytest.mark.slow
def test_redirected_data_are_unchanged(tmp_path):
    queries = [["sql", "FROM foreign_texts", "--format", form] for form in ("csv", "json")]
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps(queries)],
        env=environment(LCE_HOME=str(catalog(tmp_path))),
        capture_output=True,
        check=True,
    )
    table, rows, _ = done.stdout.decode().split("END OF COMMAND\n")
    read = list(csv.reader(io.StringIO(table, newline="")))
    assert [row[0] for row in read][1:] == list(STEERING)
    assert [row["answer"] for row in json.loads(rows)] == list(STEERING)


@pytest.mark.slow
def test_live_views_and_tracebacks_show_foreign_text_harmlessly():
    live, _, traceback = on_terminal(LIVE, ALL).partition("END OF LIVE VIEW\n")
    assert "printed" in live
    assert "last" in live
    assert not RAW.search(re.sub(r"\x1b\[[0-9;?]*[mAKlh]|\r", "", live))
    assert "OSError" in traceback
    assert not RAW.search(traceback)
