"""The table of faults fits the code, and the command tells what is noticed from what is not.

The command runs on a tree of two files made here; the whole table is no part of the suite.
"""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import hypothesis  # noqa: F401 - pytest in a fork would import it anew
import pytest

from tests.mutation.__main__ import main
from tests.mutation.faults import read_table
from tests.support.repository import ROOT

FAULTS = read_table()
SOUND = "def double(number):\n    return 2 * number\n\n\ndef name():\n    return 'double'\n"
TESTS = "from doubling import double\n\n\ndef test_doubles():\n    assert double(2) == 4\n"


@cache
def structure(source: str) -> str:
    return ast.dump(ast.parse(source))


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_a_fault_fits_the_code_and_names_tests_that_exist(fault):
    path, planted = fault.planted(ROOT)
    assert fault.missing_tests(ROOT) == []
    if path.suffix == ".py":
        assert structure(planted) != structure(path.read_text("utf-8")), "only the layout differs"


def test_a_fault_is_no_name_that_does_not_exist(tmp_path):
    for fault in FAULTS:
        path, planted = fault.planted(ROOT)
        (tmp_path / f"{fault.name}{path.suffix}").write_text(planted, "utf-8")
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", str(tmp_path)]
    done = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_survivors_are_documented_and_no_others():
    part = (ROOT / "docs" / "exactness.md").read_text("utf-8").partition("## Survivors")[2]
    documented = {line.split("`")[1] for line in part.splitlines() if line.startswith("- `")}
    assert documented == {fault.name for fault in FAULTS if fault.survives}


@pytest.fixture
def tree(tmp_path) -> Path:
    root = tmp_path / "tree"
    (root / "tests").mkdir(parents=True)
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\npythonpath = ['.']\n")
    (root / "doubling.py").write_text(SOUND)
    (root / "tests" / "test_doubling.py").write_text(TESTS)
    return root


def run(tree: Path, *lines: str) -> int:
    table = tree.parent / "faults.toml"
    fields = "file = 'doubling.py', tests = ['tests/test_doubling.py']"
    table.write_text("[area]\n" + "".join(f"{line.format(fields)}\n" for line in lines))
    return main(["--table", str(table), "--root", str(tree)])


@pytest.mark.slow
def test_noticed_faults_are_told_from_survivors(tree, capsys):
    fields = {
        "plus": "old = '2 * number', new = '3 + number'",
        "hidden": "old = \"'double'\", new = \"'triple'\"",
    }
    fields["known"] = f"{fields['hidden']}, survives = 'why'"
    fields["wrongly"] = f"{fields['plus']}, survives = 'why'"
    assert run(tree, *(f"{name} = {{{{{{}}, {text}}}}}" for name, text in fields.items())) == 1
    *lines, summary = capsys.readouterr().out.splitlines()
    ends = {line.split()[1]: line for line in lines}
    assert ends["plus"].endswith("tests/test_doubling.py::test_doubles")
    assert ends["hidden"].endswith("SURVIVES")
    assert ends["known"].endswith("survives, documented")
    assert "DOCUMENTED AS A SURVIVOR" in ends["wrongly"]
    assert summary == "2 of 4 noticed, 2 not as documented"
    assert (tree / "doubling.py").read_text() == SOUND


@pytest.mark.slow
def test_the_projects_own_tests_run_and_notice_a_fault() -> None:
    # A process of its own, as users start it: a fork of this one has what other tests left in it.
    name = "statistics-flips-alone"
    command = [sys.executable, "-m", "tests.mutation", "--only", name]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 of 1 noticed" in ended.stdout


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("gone = {{{}, old = '4 * number', new = ''}}", "has 0 times"),
        ("twice = {{{}, old = 'return', new = ''}}", "has 2 times"),
        ("same = {{{}, old = '2 *', new = '2 *'}}", "the same"),
        ("import = {{{}, old = 'def double', new = 'def treble'}}", "pytest ended with 2"),
        ("more = {{{}, old = '2', new = '3', extra = 1}}", "extra"),
        ("a = {{{0}, old = '2', new = ''}}\n[b]\na = {{{0}, old = '2', new = ''}}", "occur twice"),
    ],
    ids=["gone", "twice", "same", "import", "field", "name"],
)
def test_a_table_that_does_not_fit_is_refused(tree, line, complaint, capsys):
    assert run(tree, line) == 2
    assert complaint in capsys.readouterr().out


@pytest.mark.slow
def test_tests_that_fail_without_a_fault_are_refused(tree, capsys):
    (tree / "tests" / "test_doubling.py").write_text(TESTS.replace("== 4", "== 5"))
    assert run(tree, "plus = {{{}, old = '2 * number', new = '3 + number'}}") == 2
    assert "fails without any fault" in capsys.readouterr().out
