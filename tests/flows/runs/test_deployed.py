"""Whether a flow run is a deployment's is known without a server, which may have died."""

from uuid import uuid4

from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.runs.interrupts import is_deployed
from tests.support.ports import unused_port


def test_the_run_at_hand_says_it():
    assert not is_deployed()  # outside of a flow
    nobody = {PREFECT_API_URL: f"http://127.0.0.1:{unused_port()}/api"}
    for deployment in (uuid4(), None):
        run = FlowRun(flow_id=uuid4(), deployment_id=deployment)
        with temporary_settings(nobody), FlowRunContext.model_construct(flow_run=run):
            assert is_deployed() is (deployment is not None)
