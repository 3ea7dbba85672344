"""The plug-in of Prefect where its client has moved, and what a flow run says of itself."""

import logging
from uuid import uuid4

import prefect
import pytest
from prefect.client.orchestration import PrefectClient, SyncPrefectClient
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext
from prefect.plugins import HookContext
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.prefect_plugin import is_active, setup_environment
from flows.runs.interrupts import is_deployed
from lce_core.errors import PrefectMovedError
from tests.support.ports import unused_port

CONTEXT = HookContext(prefect.__version__, None, logging.getLogger)


def test_setting_up_twice_wraps_once(monkeypatch):
    for client in (PrefectClient, SyncPrefectClient):
        original = client.read_deployment_by_name
        monkeypatch.setattr(client, "read_deployment_by_name", original)
    setup_environment(ctx=CONTEXT)
    assert is_active()
    wrapped = PrefectClient.read_deployment_by_name
    setup_environment(ctx=CONTEXT)
    assert PrefectClient.read_deployment_by_name is wrapped


def test_a_prefect_that_moved_its_client_is_named_with_the_form_that_works(monkeypatch):
    def renamed(self: object, flow: str, deployment: str) -> None:
        pass

    monkeypatch.setattr(PrefectClient, "read_deployment_by_name", renamed)
    with pytest.raises(PrefectMovedError, match="run controlled-study/controlled-study"):
        setup_environment(ctx=CONTEXT)


def test_a_flow_run_says_without_a_server_whether_it_is_a_deployments():
    assert not is_deployed()  # outside of a flow
    nobody = {PREFECT_API_URL: f"http://127.0.0.1:{unused_port()}/api"}
    for deployment in (uuid4(), None):
        run = FlowRun(flow_id=uuid4(), deployment_id=deployment)
        with temporary_settings(nobody), FlowRunContext.model_construct(flow_run=run):
            assert is_deployed() is (deployment is not None)
