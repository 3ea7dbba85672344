"""Results of a user's own plug-in are not served once its code changed under the same VERSION."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flows.pulling import pull_studies
from flows.request import compile_request
from flows.settings import make_execution
from flows.work import RunOptions
from lce.views.planning import Inspection, inspect_study
from lce_core.errors import SpecError
from lce_core.execution import Execution
from lce_core.runners import Runner
from lce_core.store.artifacts import Store
from lce_core.store.records import Record
from tests.support.plugin_copies import plugins_removed_after
from tests.support.studies import TINY, copied_home, lce, library_text, write_study

PLUGIN = '''"""All frequencies, divided."""

from lce_core.methods import Method
from lce_core.methods._mine_numbers import divisor
from lce_core.registry import Source
from lce_core.rope import RopeTable


class Mine(Method):
    """A divisor of all frequencies."""

    family = "interpolation"

    def rope_table(self, geometry, lengths):
        return RopeTable(geometry.inv_freq() / divisor())


METHOD = Mine
SOURCE = Source(paper="own", place="all of it", reference="own")
EVIDENCE = ()
VERSION = 1
'''
HELPER = "from . import _mine_deeper\n\n\ndef divisor():\n    return _mine_deeper.DIVISOR\n"
DEEPER = "DIVISOR = 2.0\n"
STUDY: dict[str, Any] = TINY | {
    "study": "changing",
    "base_models": [{"name": "toy_llama", "steps": 2}],
    "methods": [{"name": "none"}, {"name": "mine", "tuned": True}],
    "benchmarks": [{"name": "passkey", "profile": "tiny", "lengths": [128], "num_samples": 2}],
}
DEPENDENT = 2
"""Steps at or below the plug-in: the fine-tuned checkpoint and its cell."""


@dataclass(frozen=True)
class Trial:
    folder: Path

    @property
    def study(self) -> str:
        return next(str(path) for path in self.folder.glob("study-*.yaml"))

    @property
    def methods(self) -> Path:
        return self.folder / "plugins" / "methods"

    def change(self, name: str, old: str, new: str) -> None:
        file = self.methods / name
        text = file.read_text(encoding="utf-8")
        assert text.count(old) == 1
        # Python compares seconds and sizes, and would run the bytecode of the older text.
        shutil.rmtree(self.methods / "__pycache__", ignore_errors=True)
        file.write_text(text.replace(old, new), encoding="utf-8")

    def execution(self) -> Execution:
        return make_execution(
            {
                "home": self.folder / "home",
                "device": "cpu",
                "slots": 1,
                "data_folders": {"text": self.folder / "text"},
                "plugin_folders": (self.folder / "plugins",),
            }
        )

    def plan(self, **options: Any) -> Inspection:
        with plugins_removed_after():
            return inspect_study(self.study, self.execution(), **options)

    def compute(self) -> list[str]:
        """Compute what is missing; return each step's outcome."""
        with plugins_removed_after():
            how = self.execution()
            store = Store(how.home)
            store.prepare()
            runner = Runner(store, how, lambda _: None)
            steps = compile_request(self.study, how).plan.steps.values()
            return [runner.ensure(step) for step in steps]

    def records(self) -> list[Record]:
        return [record for _, record in Store(self.folder / "home").records()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Trial:
    trial = Trial(tmp_path_factory.mktemp("finished"))
    trial.methods.mkdir(parents=True)
    for name, text in (
        ("mine.py", PLUGIN),
        ("_mine_numbers.py", HELPER),
        ("_mine_deeper.py", DEEPER),
    ):
        (trial.methods / name).write_text(text, encoding="utf-8")
    library_text(trial.folder / "text")
    write_study(trial.folder, STUDY)
    assert set(trial.compute()) == {"computed"}
    return trial


@pytest.fixture
def trial(finished, tmp_path) -> Trial:
    copied_home(finished.folder / "home", tmp_path / "home")
    shutil.copytree(finished.folder / "plugins", tmp_path / "plugins")
    shutil.copytree(finished.folder / "text", tmp_path / "text")
    shutil.copy(finished.study, tmp_path)
    return Trial(tmp_path)


FORMULA = ("mine.py", "/ divisor()", "/ divisor() / 2")
HELPERS = ("_mine_deeper.py", "2.0", "3.0")
COMMENT = ("_mine_numbers.py", "def divisor", "# Two.\ndef divisor")

pytestmark = pytest.mark.slow


def test_unchanged_plugins_in_another_folder_are_served(trial):
    found = trial.plan()
    assert {state.state for state in found.states.values()} == {"done"}
    assert found.plugin_lines() == []


@pytest.mark.parametrize("change", [HELPERS, COMMENT], ids=["helper", "comment"])
def test_the_plan_names_a_changed_plugin(trial, change):
    trial.change(*change)
    found = trial.plan()
    (line,) = found.plugin_lines()
    assert f"methods/mine ({trial.methods / 'mine.py'}, VERSION 1)" in line
    assert f"{DEPENDENT} steps depend" in line
    assert "--accept-plugin-change" in line
    assert found.change_counts() == {"stale": 1, "done": 1}


def test_runs_and_workers_refuse_a_changed_plugin_before_a_server_starts(trial):
    trial.change(*FORMULA)
    home = trial.folder / "home"
    options = ("--plugins", str(trial.folder / "plugins"))
    options += ("--data-folder", f"text={trial.folder / 'text'}")
    refused = lce(home, "run", trial.study, *options, status=2)
    assert "methods/mine VERSION 1" in " ".join(refused.split())
    with plugins_removed_after(), pytest.raises(SpecError) as caught:
        pull_studies([trial.study], trial.execution(), RunOptions())
    assert "methods/mine VERSION 1" in caught.value.got
    assert "--accept-plugin-change" in caught.value.remedy
    assert not (home / "prefect").exists()
    assert not list((home / "studies").iterdir())


def test_steps_below_a_changed_plugin_are_not_current_either(trial):
    # The cell of the changed checkpoint is still to be computed, and would use old weights.
    (cell,) = (one for one in trial.records() if one.kind == "cell" and one.plugins)
    shutil.rmtree(next((trial.folder / "home/artifacts/cell").glob(f"*-{cell.fingerprint[:12]}")))
    trial.change(*FORMULA)
    states = trial.plan().states
    assert states[cell.fingerprint].change == "new"
    assert states[cell.fingerprint].plugin_changes
    assert states[cell.parents["checkpoint"]].change == "stale"


def test_cells_that_do_not_use_the_plugin_may_be_run(trial):
    trial.change(*FORMULA)
    with plugins_removed_after():
        pull_studies([trial.study], trial.execution(), RunOptions("method=none"))


def test_an_accepted_change_is_served_until_the_next_one(trial):
    trial.change(*COMMENT)
    assert trial.plan(accept_plugin_change=True).plugin_lines() == []
    assert trial.plan().plugin_lines() == []  # another process need not be told
    assert set(trial.compute()) == {"existing"}
    trial.change(*FORMULA)
    assert trial.plan().plugin_lines()
    with plugins_removed_after():
        pull_studies([trial.study], trial.execution(), RunOptions(accept_plugin_change=True))
    assert trial.plan().plugin_lines() == []


def test_a_raised_version_gives_new_steps(trial):
    trial.change(*FORMULA)
    trial.change("mine.py", "VERSION = 1", "VERSION = 2")
    found = trial.plan()
    assert found.plugin_lines() == []
    assert len(list(found.to_do())) == DEPENDENT
    assert trial.compute().count("computed") == DEPENDENT
    assert {state.state for state in trial.plan().states.values()} == {"done"}


def test_records_without_a_digest_are_served_silently(trial):
    for folder, record in Store(trial.folder / "home").records():
        (folder / "record.json").unlink()  # a link to the finished study's
        record.model_copy(update={"plugins": {}}).write(folder)
    trial.change(*FORMULA)
    assert trial.plan().plugin_lines() == []
