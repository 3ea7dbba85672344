"""`lce check` on copies of shipped plug-ins under other names, changed in one place.

The examples of CONTRIBUTING are checked in tests/test_documentation.py, by the same command.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lce.cli import app
from lce.plugins.authoring import PluginFile, plugin_files
from lce_core.benchmarks import BENCHMARKS
from lce_core.errors import SpecError
from lce_core.methods import METHODS
from lce_core.study.plugin_folders import add_plugin_folders
from tests.support.data.fixture_data import fixture_folders
from tests.support.plugin_copies import plugins_removed_after
from tests.support.repository import ROOT

PI = (ROOT / "lce_core" / "methods" / "pi.py").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path) -> Iterator[Path]:
    """A folder of plug-ins, which takes part no longer than its test."""
    with plugins_removed_after():
        yield tmp_path / "plugins"


def write(folder: Path, file: str, content: str) -> Path:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def check(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["check", *map(str, arguments)])


def test_a_fault_is_named_by_its_check_and_the_others_go_on(folder):
    assert PI.count("geometry.inv_freq() / self") == 1
    faulty = PI.replace("geometry.inv_freq() / self", "1.01 * geometry.inv_freq() / self")
    write(folder, "methods/faulty_pi.py", faulty)
    write(folder, "methods/well_pi.py", PI)
    done = check(folder)
    assert done.exit_code == 1
    faults = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    assert [line.partition(":")[0] for line in faults] == ["FAIL evidence", "FAIL unextended table"]
    first, _, second = done.stdout.partition("methods/well_pi\n")
    assert first.startswith("methods/faulty_pi\n")
    assert {line[:5] for line in second.splitlines()} == {"ok   "}
    assert len(second.splitlines()) == 22


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("def (", "SyntaxError: invalid syntax"),
        (PI.replace("VERSION = 1", ""), "without VERSION"),
        (PI.replace("VERSION = 1", "VERSION = 1  # <- fill in"), "line "),
    ],
    ids=["syntax", "part missing", "mark"],
)
def test_a_file_that_cannot_be_loaded_is_one_finding(folder, content, said):
    done = check(write(folder, "methods/broken_one.py", content))
    assert done.exit_code == 1
    assert done.stdout.count("FAIL") == done.stdout.count("FAIL loading: ") == 1
    assert said in done.stdout


def test_code_that_raises_is_a_finding_with_its_line(folder):
    raising = PI.replace("return RopeTable(", "1 / 0\n        return RopeTable(")
    assert raising != PI
    done = check(write(folder, "methods/raising_pi.py", raising))
    assert done.exit_code == 1
    assert "ZeroDivisionError: division by zero (raising_pi.py, line" in done.stdout


def test_corpora_and_base_models_are_checked_too(folder):
    for place, name in (("corpora", "jsonl_folder"), ("models", "toy_llama")):
        shutil.copy(
            ROOT / "lce_core" / place / f"{name}.py", write(folder, f"{place}/{name}_copy.py", "")
        )
    done = check(folder)
    assert done.exit_code == 0, done.output
    assert done.stdout.count("ok   evidence") == 2


@pytest.mark.slow
def test_a_benchmark_reads_its_data_from_the_folders_given(folder, tmp_path):
    shutil.copytree(ROOT / "lce_core" / "benchmarks" / "many_shot", folder / "benchmarks" / "shots")
    for file in (folder / "benchmarks" / "shots").glob("*.py"):
        moved = file.read_text("utf-8").replace("benchmarks.many_shot", "benchmarks.shots")
        file.write_text(moved, encoding="utf-8")
    without = check(folder / "benchmarks" / "shots")
    assert without.exit_code == 1
    assert "give `--data-folder trec=FOLDER`" in without.stdout
    tasks = BENCHMARKS.load("many_shot")().tasks()
    data = fixture_folders(BENCHMARKS.load("many_shot")().reads(tasks[0]), tmp_path)
    given = [f"--data-folder={name}={place}" for name, place in data.items()]
    done = check(folder / "benchmarks" / "shots" / "__init__.py", *given)
    assert done.exit_code == 0, done.stdout


def test_a_path_may_be_a_file_a_folder_of_one_plug_in_or_of_many(folder):
    file = write(folder, "methods/one.py", "")
    write(folder, "methods/_private.py", "")
    init = write(folder, "benchmarks/two/__init__.py", "")
    one, two = PluginFile(folder, "methods", "one"), PluginFile(folder, "benchmarks", "two")
    assert plugin_files(file) == [one]
    assert plugin_files(init) == plugin_files(init.parent) == [two]
    assert plugin_files(folder) == [one, two]


def test_a_file_with_the_name_of_a_shipped_plug_in_is_refused_and_takes_no_part(folder):
    write(folder, "methods/yarn.py", PI)
    with pytest.raises(SpecError, match="'yarn', the name of another plug-in"):
        add_plugin_folders((folder,))
    assert METHODS.names().count("yarn") == 1
