"""Which names Prefect's client completes, and what the plug-in does where the client has moved."""

import logging

import prefect
import pytest
from prefect.client.orchestration import PrefectClient, SyncPrefectClient
from prefect.plugins import HookContext

from flows.prefect_plugin import is_active, setup_environment
from lce_core.errors import PrefectMovedError

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
