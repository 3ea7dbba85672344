"""A study with looks drops a settled method, and later commands know it from the store.

In the tiny study pi answers nearly all prompts right, the others one in ten.
"""

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from flows import looking
from flows.pulling import pull_studies
from flows.request import compile_request
from flows.settings import make_execution
from flows.work import RunOptions, preflight
from lce.views import planning
from lce_core.execution import Execution
from lce_core.store import study_folders
from lce_core.store.artifacts import Store
from lce_core.study.looks import settled_methods
from tasks.questions import read
from tests.support.studies import (
    SMOKE,
    computed,
    copied_home,
    library_text,
    new_home,
    on_host,
    results,
    start,
    wait_until,
)

pytestmark = pytest.mark.slow

BENCHMARK = '''
"""Prompts of which a method answers a fixed share right."""
from typing import ClassVar
import numpy as np
import torch
from lce_core.benchmarks import Benchmark, CellResult, Profile, Sample, Sequences, Source, score
from lce_core.statistics.estimates import wilson

VERSION = 1
SOURCE = Source(paper="own", place="tests", reference="own")
EVIDENCE = ()


class Guesses(Benchmark):
    """Share of right answers."""

    kind: ClassVar[str] = "understanding"
    unit: ClassVar[str] = "accuracy"
    seeded: ClassVar[bool] = True
    default_metric: ClassVar[str] = "right"
    profiles: ClassVar = {"tiny": Profile("answers without a model")}

    def tasks(self):
        return ("all",)

    def num_tokens(self, task, eval_length, held_out_tokens):
        return 100

    def evaluate(self, request):
        request.model.begin_request(100)  # a pass gives the cell a cost
        request.model.hidden_states(torch.ones(1, 100, dtype=torch.long))
        name = request.model.method.plugin_name
        right = np.arange(1000) < (900 if name == "pi" else 100)
        np.random.default_rng([request.seed, len(name)]).shuffle(right)
        samples = tuple(
            Sample(index, 1, float(one), None, "yes", "yes") for index, one in enumerate(right)
        )
        found = score("right", wilson(int(right.sum()), 1000), higher_is_better=True)
        return CellResult((found,), samples, sequences=Sequences.of([1] * 1000))


BENCHMARK = Guesses
'''
EXPECTS = [
    {"better": name, "than": ["none"], "benchmark": "guesses"} for name in ("pi", "ntk_aware")
]
STUDY: dict[str, Any] = SMOKE | {
    "study": "looked",
    "corpus": {"name": "jsonl_folder", "domain_names": ["code"], "held_out_percent": 30},
    "base_models": [{"name": "toy_llama", "steps": 1}],
    "methods": ["none", "pi", "ntk_aware"],
    "benchmarks": [{"name": "guesses", "profile": "tiny", "lengths": [128]}],
    "seeds": [3, 0, 1],
    "expects": EXPECTS,
    "looks": [2, 3],
}
DONE = "SELECT method, seed FROM cells WHERE status = 'done' ORDER BY ALL"
OUTCOMES = (
    "SELECT method, outcome, look, num_seeds, settled_seeds, p_adjusted FROM expectations"
    " ORDER BY method"
)


class Looked:
    def __init__(self, folder: Path, migrated: Path) -> None:
        plugins = folder / "plugins" / "benchmarks"
        plugins.mkdir(parents=True)
        (plugins / "guesses.py").write_text(BENCHMARK, encoding="utf-8")
        library_text(folder / "text")
        self.file = folder / "study.yaml"
        self.folder = folder
        self.write()
        new_home(migrated, folder / "home")
        pull_studies([str(self.file)], self.execution("home"), RunOptions())

    def write(self, **changes: Any) -> None:
        self.file.write_text(yaml.safe_dump({**STUDY, **changes}), encoding="utf-8")

    def execution(self, home: str) -> Execution:
        return make_execution(
            {
                "home": self.folder / home,
                "device": "cpu",
                "slots": 1,
                "data_folders": {"text": self.folder / "text"},
                "plugin_folders": (self.folder / "plugins",),
            }
        )

    def copy(self, name: str) -> Execution:
        copied_home(self.folder / "home", self.folder / name)
        return self.execution(name)


@pytest.fixture(scope="module")
def looked(tmp_path_factory, migrated) -> Looked:
    return Looked(tmp_path_factory.mktemp("looked"), migrated)


def recorded(home: Path) -> list[dict[str, Any]]:
    found = json.loads((home / "studies" / "looked" / "looks.json").read_text())["looks"]
    return [{name: value for name, value in one.items() if name != "at"} for one in found]


def test_a_method_is_dropped_at_the_look_that_settles_it_and_the_catalog_says_so(looked):
    home = looked.folder / "home"
    # The base model stays, because the comparison of ntk_aware is open.
    kept = [(name, seed) for name in ("none", "ntk_aware") for seed in (0, 1, 3)]
    assert read(home, DONE) == sorted([*kept, ("pi", 0), ("pi", 3)])
    ntk, pi = read(home, OUTCOMES)
    assert ntk[:5] == ("ntk_aware", "undecided", 2, 3, None)
    assert pi[:5] == ("pi", "confirmed", 1, 2, 2)
    assert pi[5] <= 0.05
    first, second = recorded(home)
    assert [(one["look"], one["seeds"]) for one in (first, second)] == [(1, 2), (2, 3)]
    outcomes = [
        [(c["method"], c["outcome"]) for c in one["comparisons"]] for one in (first, second)
    ]
    assert [sorted(one) for one in outcomes] == [
        [("ntk_aware", "undecided"), ("pi", "confirmed")],
        [("ntk_aware", "undecided")],
    ]


def test_a_killed_run_is_resumed_with_the_same_decisions(looked):
    execution = looked.copy("killed")
    home = execution.home
    # Killed before the first look: no outcome is recorded, and no cell of the last seed is done.
    (home / "studies" / "looked" / "looks.json").unlink()
    for cell in (home / "artifacts" / "cell").glob("*-s1-*"):
        shutil.rmtree(cell)
    watched = planning.inspect_study(str(looked.file), execution)
    assert watched.change_counts() == {"done": 6, "new": 3}
    options = ("--data-folder", f"text={looked.folder / 'text'}", "--slots", "1")
    plugins = ("--plugins", str(looked.folder / "plugins"))
    # Killed again, right after the first look.
    killed = start(home, "worker", str(looked.file), *options, *plugins)
    wait_until((home / "studies" / "looked" / "looks.json").exists)
    killed.kill()
    killed.communicate()
    pull_studies([str(looked.file)], execution, RunOptions())
    assert watched.again().change_counts() == {"done": 8, "unavailable": 1}
    assert recorded(home) == recorded(looked.folder / "home")
    assert read(home, DONE) == read(looked.folder / "home", DONE)
    assert read(home, OUTCOMES) == read(looked.folder / "home", OUTCOMES)


def test_two_hosts_make_the_same_looks_and_compute_each_step_once(looked, migrated):
    home = new_home(migrated, looked.folder / "shared")
    options = ("--data-folder", f"text={looked.folder / 'text'}", "--slots", "1")
    command = (str(looked.file), *options, "--plugins", str(looked.folder / "plugins"))
    hosts = [on_host(name, home, *command) for name in ("one", "two")]
    outputs = [host.communicate()[0] for host in hosts]
    assert [host.returncode for host in hosts] == [0, 0], outputs
    for look in ("look 1 after 2 seeds: 1 of 2", "look 2 after 3 seeds: 1 of 2"):
        assert any(look in output for output in outputs)
    single = looked.folder / "home"
    assert recorded(home) == recorded(single)
    assert sum(map(computed, outputs)) == len(list(Store(single).records()))
    assert results(home) == results(single)
    assert read(home, DONE) == read(single, DONE)
    assert read(home, OUTCOMES) == read(single, OUTCOMES)


def test_looks_that_hosts_record_at_the_same_time_are_recorded_once_each(looked, monkeypatch):
    execution = looked.copy("twice")
    plan, before = (
        compile_request(str(looked.file), execution).plan.to_json(),
        recorded(execution.home),
    )
    (execution.home / "studies" / "looked" / "looks.json").unlink()

    read_looks = study_folders._all_looks

    def slowly(folder: Path) -> list[dict[str, Any]]:
        found = read_looks(folder)
        time.sleep(0.1)
        return found

    monkeypatch.setattr(study_folders, "_all_looks", slowly)

    def record(look: int) -> None:
        Store(execution.home).studies.record_look(plan, look, before[look - 1]["comparisons"])

    with ThreadPoolExecutor(8) as hosts:
        list(hosts.map(record, [1, 2] * 4))
    assert sorted(recorded(execution.home), key=lambda one: one["look"]) == before
    # The first outcomes are final.
    Store(execution.home).studies.record_look(plan, 1, before[1]["comparisons"])
    assert sorted(recorded(execution.home), key=lambda one: one["look"]) == before


def test_looks_at_other_expectations_do_not_count(looked):
    execution = looked.copy("amended")
    try:
        looked.write(expects=EXPECTS[:1])
        plan = compile_request(str(looked.file), execution).plan
        assert not any(cell.settled for cell in plan.cells)
        (work,) = preflight([str(looked.file)], execution, RunOptions())
        assert any("earlier looks do not count" in note for note in work.notes)
        assert work.look == 1
        assert {cell.seed for cell in work.wanted.cells} == {3, 0}
    finally:
        looked.write()


def test_a_selection_computes_what_it_names_and_tests_nothing(looked):
    execution = looked.copy("selected")
    (execution.home / "studies" / "looked" / "looks.json").unlink()
    (work,) = preflight([str(looked.file)], execution, RunOptions(select="seed=1"))
    assert work.look is None
    assert {cell.seed for cell in work.wanted.cells} == {1}


def test_a_variant_is_settled_when_its_last_open_comparison_is(looked):
    plan = compile_request(str(looked.file), looked.execution("home")).plan.to_json()
    looks = Store(looked.folder / "home").studies.looks(plan)
    assert settled_methods(plan["expects"], looks) == {("toy_llama", "pi", True): 1}
    for one in looks[1]["comparisons"]:
        one["outcome"] = "contradicted"
    assert settled_methods(plan["expects"], looks) == {
        ("toy_llama", "pi", True): 1,
        ("toy_llama", "none", True): 2,
        ("toy_llama", "ntk_aware", True): 2,
    }


def test_a_look_records_each_metric_apart(tmp_path, monkeypatch):
    pair = {
        "base_model": "b", "method": "yarn", "frozen": True, "other_method": "none",
        "other_frozen": True, "benchmark": "multi_key", "eval_length": 512, "expected": "better",
        "margin": None,
    }  # fmt: skip
    expects = [{"entry": 0, **pair}, {"entry": 1, **pair, "metric": "margin"}]
    plan = {"study": "s", "hypothesis": "h", "expects": expects, "looks": [2, 3]}
    outcome = {"look": 1, "num_seeds": 2, "level": 0.01, "p_adjusted": 0.001}
    found = [
        {**pair, **outcome, "metric": metric, "outcome": is_found}
        for metric, is_found in (("accuracy", "undecided"), ("margin", "confirmed"))
    ]
    rows = [tuple(one[name] for name in looking._COLUMNS) for one in found]
    monkeypatch.setattr("tasks.questions.read", lambda home, sql: rows)
    study = SimpleNamespace(base_models=["b"])
    request = SimpleNamespace(plan=SimpleNamespace(to_json=lambda: plan))
    work = SimpleNamespace(request=request, look=1, wanted=SimpleNamespace(study=study))
    line = looking._tested(work, Store(tmp_path))
    assert "1 of 2 comparisons settled so far; no method is settled" in line
    (look,) = Store(tmp_path).studies.looks(plan)
    recorded_metrics = {one.get("metric"): one["outcome"] for one in look["comparisons"]}
    assert recorded_metrics == {None: "undecided", "margin": "confirmed"}
