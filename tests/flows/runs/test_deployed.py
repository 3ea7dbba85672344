"""Whether a flow run is a deployment's is known without a server, which may have died."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.runs.deployed import is_deployed
from tests.support.ports import unused_port


@pytest.mark.parametrize(("deployment", "expected"), [(uuid4(), True), (None, False)])
def test_the_run_at_hand_says_it(deployment: UUID | None, expected: bool) -> None:
    run = FlowRun(flow_id=uuid4(), deployment_id=deployment)
    nobody = {PREFECT_API_URL: f"http://127.0.0.1:{unused_port()}/api"}
    with temporary_settings(nobody), FlowRunContext.model_construct(flow_run=run):
        assert is_deployed() is expected


def test_outside_of_a_flow_nothing_is_deployed() -> None:
    assert not is_deployed()
