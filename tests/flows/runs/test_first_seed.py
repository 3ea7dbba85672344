"""The first seed's table, from cells that are really computed, unit by unit, as a run ends them."""

import pytest
import yaml

from flows.runs.display import FirstSeedDisplay
from flows.runs.scheduling import Display
from flows.settings import make_execution
from lce_core.runners import Runner
from lce_core.store.artifacts import Store
from lce_core.study.plan import StudyPlan, compile_study
from lce_core.study.progress import inspect
from lce_core.study.study_file import parse_study
from lce_core.study.units import Unit, units_to_do
from tests.support.studies import SMOKE, wait_until


class Told(Display):
    def __init__(self) -> None:
        self.finished: list[str] = []
        self.texts: list[str] = []

    def finish(self, *units: Unit, failure: str = "") -> None:
        self.finished += [unit.name for unit in units]

    def show(self, text: str) -> None:
        self.texts.append(text)


def planned(*seeds: int) -> StudyPlan:
    study = SMOKE | {
        "base_models": [{"name": "toy_llama", "steps": 1}],
        "methods": [{"name": "none"}, {"name": "yarn"}],
        "benchmarks": [{"name": "perplexity", "profile": "tiny", "lengths": [64, 128]}],
        "seeds": list(seeds),
    }
    return compile_study(parse_study(yaml.safe_dump(study), "test"), {})


def finished(display: FirstSeedDisplay, told: Told, units: list[Unit], runner: Runner) -> None:
    """Computes units one by one; the display is told as the scheduler tells it."""
    for unit in units:
        for step in unit.steps:
            runner.ensure(step)
        display.finish(unit)
        wait_until(lambda display=display: display._table is None or display._table.done())
        display.refresh()


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store(tmp_path / "home")
    store.prepare()
    return store


@pytest.mark.slow
def test_the_table_comes_once_when_the_first_seeds_last_cell_has_ended(store):
    plan, told = planned(1, 0), Told()
    store.studies.save_plan(plan.study.study, plan.to_json(), "test")
    units = units_to_do(plan, inspect(plan, store, {}))
    runner = Runner(store, make_execution({"home": store.home, "device": "cpu"}), lambda _: None)
    display = FirstSeedDisplay(told, plan, units, store.home)
    of_seed = [sum(c.step in u.steps for c in plan.cells if c.seed == 1) for u in units]
    last = max(place for place, number in enumerate(of_seed) if number)
    finished(display, told, units[:last], runner)
    assert told.texts == []
    finished(display, told, units[last : last + 1], runner)
    (text,) = told.texts
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines[0].endswith(": seed 1, one of 2; trained context 128; target context 256")
    for line, method in zip(lines[3:5], ("none", "yarn"), strict=True):
        name, *means = line.split()
        assert name == method
        assert len(means) == 2
        assert all(float(mean) > 0 for mean in means)
    finished(display, told, units[last + 1 :], runner)
    display.close()
    assert len(told.texts) == 1
    assert told.finished == [unit.name for unit in units]


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_none_is_shown_where_it_would_not_be_early(store, seeds):
    plan, told = planned(*seeds), Told()
    units = units_to_do(plan, inspect(plan, store, {}))
    if len(seeds) > 1:  # all but the last seed is done before
        units = [u for u in units if all(step.axes.get("seed") == 1 for step in u.steps)]
        assert {step.kind for unit in units for step in unit.steps} >= {"base", "cell"}
    display = FirstSeedDisplay(told, plan, units, store.home)
    for unit in units:
        display.finish(unit)
        assert display._table is None
    display.close()
    assert told.texts == []
