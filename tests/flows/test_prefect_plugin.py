"""`prefect deployment run controlled-study`, as a user types it, against a real server.

Strategy: deploy a small flow of that name to a server of our own and run Prefect's own command
line in the checkout, where pyproject.toml enables the plug-in; without it the bare name must fail.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.prefect_plugin import full_name, is_active, setup_environment
from flows.servers.daemons import ask
from flows.servers.temporary_server import client_settings, temporary_server
from lce_core.errors import PrefectMovedError
from tests.support.repository import ROOT
from tests.support.studies import new_home

DEPLOY = """
from prefect import flow
from prefect.client.orchestration import get_client

@flow(name="controlled-study")
def controlled_study(study: str = "toy"): return study

with get_client(sync_client=True) as client:
    flow_id = client.create_flow(controlled_study)
    for name in ("controlled-study", "smoke"):
        client.create_deployment(flow_id=flow_id, name=name, entrypoint="x.py:controlled_study")
"""

installed = pytest.mark.skipif(
    "lce" not in importlib.metadata.entry_points(group="prefect.plugins").names,
    reason="the package is not installed: pip install -e .",
)


@pytest.fixture(scope="module")
def server(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Environment that leads to a server with two deployments."""
    home = new_home(migrated, tmp_path_factory.mktemp("home"))
    with temporary_server(home) as running:
        settings = {**os.environ, **client_settings(home, running.wait_ready(), running.secret)}
        settings.pop("PREFECT_PLUGINS_ENABLED")
        subprocess.run([sys.executable, "-c", DEPLOY], env=settings, check=True)
        yield settings


def prefect(settings: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deployment", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=settings, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@installed
def test_the_command_of_the_readme_works_as_typed(server: dict[str, str]) -> None:
    done = prefect(server, "run", "controlled-study")
    assert done.returncode == 0, done.stdout + done.stderr
    secret = server["PREFECT_API_AUTH_STRING"].partition(":")[2]
    (run, *_) = ask(f"{server['PREFECT_API_URL']}/flow_runs/filter", {}, secret=secret)
    assert run["state_type"] == "SCHEDULED"


@pytest.mark.slow
@installed
def test_without_the_plug_in_prefect_refuses_a_bare_name(server: dict[str, str]) -> None:
    # Should Prefect learn it one day, the plug-in can go.
    settings = {**server, "PREFECT_PLUGINS_ENABLED": "false"}
    assert prefect(settings, "run", "controlled-study").returncode != 0


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("controlled-study", "controlled-study/controlled-study"),
        ("smoke", "controlled-study/smoke"),
        ("my-flow/mine", "my-flow/mine"),
        ("a/b/c", "a/b/c"),
    ],
)
def test_only_names_without_a_slash_are_completed(name: str, full: str) -> None:
    assert full_name(name) == full


def test_setting_up_twice_wraps_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.client.orchestration import PrefectClient, SyncPrefectClient

    for client in (PrefectClient, SyncPrefectClient):
        original = client.read_deployment_by_name
        monkeypatch.setattr(client, "read_deployment_by_name", original)
    setup_environment(ctx=context())
    assert is_active()
    wrapped = PrefectClient.read_deployment_by_name
    setup_environment(ctx=context())
    assert PrefectClient.read_deployment_by_name is wrapped


def test_a_prefect_that_moved_its_client_is_named_with_the_form_that_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from prefect.client.orchestration import PrefectClient

    def renamed(self: object, flow: str, deployment: str) -> None:
        pass

    monkeypatch.setattr(PrefectClient, "read_deployment_by_name", renamed)
    with pytest.raises(PrefectMovedError, match="run controlled-study/controlled-study"):
        setup_environment(ctx=context())


def context() -> object:
    import logging

    import prefect
    from prefect.plugins import HookContext

    return HookContext(prefect.__version__, None, logging.getLogger)
