"""Prefect plug-in that makes the command `prefect deployment run controlled-study` work.

It supplies the secret to a `prefect` command that connects to exactly the server of `lce up`.

Without the plug-in, this command needs a name of the form FLOW/DEPLOYMENT. With the plug-in, a name
without a slash means a deployment of the flow `controlled-study`. Prefect loads the plug-in through
the entry point `prefect.plugins`, but only in a folder whose pyproject.toml enables plug-ins in
[tool.prefect.plugins], as the checkout's does. The plug-in wraps a method of two client classes
that are not stable API. If Prefect moves them, the error recommends the form FLOW/DEPLOYMENT.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from prefect.plugins import HookContext, SetupResult, register_hook
from prefect.settings import get_current_settings

from flows.servers.daemons import answers, find
from flows.servers.guarded_prefect import client_auth
from flows.settings import home_path
from lce_core.access import server_secret
from lce_core.errors import PrefectMovedError

FLOW = "controlled-study"
_METHOD = "read_deployment_by_name"
_MARK = "_lce_bare_names"


@register_hook
def setup_environment(*, ctx: HookContext) -> SetupResult | None:
    """Accept deployment names without a slash, and return the login for the server of `lce up`.

    Prefect calls this during its own import; it logs an error and goes on without the plug-in.
    """
    for client in _clients(ctx.prefect_version):
        read = getattr(client, _METHOD)
        if not hasattr(read, _MARK):
            setattr(client, _METHOD, _with_bare_names(read))
    credentials = _credentials(ctx.api_url or "")
    return SetupResult(env=credentials) if credentials else None


def is_active() -> bool:
    import prefect

    return all(hasattr(getattr(c, _METHOD), _MARK) for c in _clients(prefect.__version__))


def _credentials(api_url: str) -> dict[str, str]:
    """Return URL and secret for the home's server, or {}.

    It is {} for another server, if the user has set credentials, or if the server does not know the
    secret.
    """
    server, given = find(home_path(), "server"), get_current_settings().api
    if server is None or server.url != api_url.rstrip("/") or given.auth_string or given.key:
        return {}
    secret = server_secret(home_path(), "prefect")
    if not answers(f"{server.url}/health", secret):
        return {}
    # Set the address as well. Otherwise this process could later select a Prefect profile with
    # another address and send the secret there.
    return {"PREFECT_API_URL": str(server.url), **client_auth(secret)}


def _clients(version: str) -> list[type]:
    try:
        from prefect.client.orchestration import PrefectClient, SyncPrefectClient
    except ImportError as error:
        raise _moved(version, str(error)) from error
    for client in (PrefectClient, SyncPrefectClient):
        parameters = inspect.signature(getattr(client, _METHOD, lambda: None)).parameters
        if list(parameters) != ["self", "name"]:
            raise _moved(version, f"{client.__name__}.{_METHOD}({', '.join(parameters)})")
    return [PrefectClient, SyncPrefectClient]


def _moved(version: str, found: str) -> PrefectMovedError:
    return PrefectMovedError(
        f"Prefect {version}",
        found,
        f"clients with the method {_METHOD}(self, name)",
        f"put the flow before the deployment's name: prefect deployment run {FLOW}/{FLOW}",
    )


def _with_bare_names(read: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(read)
    def read_deployment_by_name(self: object, name: str) -> Any:
        # A coroutine in the asynchronous client.
        return read(self, name if "/" in name else f"{FLOW}/{name}")

    setattr(read_deployment_by_name, _MARK, True)
    return read_deployment_by_name
