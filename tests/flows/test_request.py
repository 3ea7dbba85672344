"""A study is compiled once for each request, and never served to another one."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from flows.request import compile_request, prepared, request_for
from flows.settings import STUDIES, make_execution
from lce_core.execution import Execution


@pytest.fixture
def execution(tmp_path: Path) -> Execution:
    return make_execution({"home": tmp_path / "home", "device": "cpu"})


@pytest.fixture
def study(tmp_path: Path) -> Path:
    file = tmp_path / "mine.yaml"
    file.write_text((STUDIES / "smoke.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    return file


def test_the_flow_takes_the_plan_that_was_prepared_for_its_parameters(
    study: Path, execution: Execution
) -> None:
    request = compile_request(str(study), execution)
    as_the_flow_gets_it = make_execution(execution.model_dump(mode="json"))
    with prepared(request):
        assert request_for(str(study), as_the_flow_gets_it) is request


def test_another_study_another_execution_and_a_later_request_are_compiled(
    study: Path, execution: Execution
) -> None:
    request = compile_request(str(study), execution)
    with prepared(request):
        assert request_for("smoke", execution) is not request
        on_a_folder = execution.model_copy(update={"data_folders": {"text": study.parent}})
        assert request_for(str(study), on_a_folder) is not request
    content = yaml.safe_load(study.read_text(encoding="utf-8"))
    study.write_text(yaml.safe_dump({**content, "seeds": [7]}), encoding="utf-8")
    later = request_for(str(study), execution)
    assert {cell.seed for cell in later.plan.cells} == {7}
