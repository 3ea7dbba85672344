"""Kinds of steps are whole: each one is computed by a function, and refuses what is not its own."""

from typing import Any

import pytest

from flows.settings import STUDIES, make_execution
from lce_core.errors import SpecError
from lce_core.runners import Runner
from lce_core.statistics.estimates import INTERVALS
from lce_core.store.artifacts import Store
from lce_core.store.steps import Step
from lce_core.study.plan import compile_study
from lce_core.study.step_kinds import KINDS, spec_of
from lce_core.study.study_file import load_study


@pytest.fixture(scope="module")
def steps() -> list[Step]:
    return list(compile_study(load_study(STUDIES / "smoke.yaml"), {}).steps.values())


def of_kind(steps: list[Step], kind: str, **changes: Any) -> Step:
    step = next(step for step in steps if step.kind == kind)
    return Step(**{**step.to_json(), "spec": {**step.spec, **changes}})


def test_kinds_start_in_the_order_in_which_they_wait_for_each_other(steps):
    by_print = {step.fingerprint: step for step in steps}
    for step in steps:
        for parent in step.parents.values():
            assert KINDS[by_print[parent].kind].order < KINDS[step.kind].order
    assert len({kind.order for kind in KINDS.values()}) == len(KINDS)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("rows", {"rows_length": 8}, "rows_length: got an unknown key"),
        ("cell", {"method": {"name": "yarn", "version": 0}}, "version 0"),
        ("cell", {"intervals": {"wilson": {"version": 0}}}, "intervals"),
    ],
)
def test_a_spec_that_another_version_wrote_is_refused_with_its_place(steps, kind, changes, message):
    with pytest.raises(SpecError, match=message):
        spec_of(of_kind(steps, kind, **changes))


def test_the_definition_of_intervals_is_part_of_a_cells_identity(monkeypatch, steps):
    for step in steps:
        assert (step.spec.get("intervals") == INTERVALS) == (step.kind == "cell")
    study = load_study(STUDIES / "smoke.yaml")
    monkeypatch.setitem(INTERVALS, "wilson", {**INTERVALS["wilson"], "version": 2})
    changed = compile_study(study, {}).steps.values()
    assert not {s.fingerprint for s in changed if s.kind == "cell"} & {s.fingerprint for s in steps}


def test_what_the_runner_cannot_read_is_a_failure_of_the_step(steps, tmp_path):
    store = Store(tmp_path)
    store.prepare()
    runner = Runner(store, make_execution({"home": tmp_path, "device": "cpu"}), lambda event: None)
    step = of_kind(steps, "rows", corpus={"name": "local_text", "version": 0})
    with pytest.raises(SpecError, match="version 0"):
        runner.ensure(step)
    failure = store.failures.of(step)
    assert failure is not None
    assert failure["class"] == "data"
