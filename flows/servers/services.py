"""`lce up` and `lce down`: Prefect's server, a worker and the MLflow UI on loopback.

The services keep their files in LCE_HOME and listen only on 127.0.0.1. They ignore the Prefect and
MLflow settings in the user's environment and working folder, except a few that restrict a server
(`lce_core.environment.PREFECT_RESTRICTING`). `up` does not restart services that already run.
"""

import shlex
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from filelock import FileLock

from flows.servers import daemons
from flows.servers.daemons import NAMES, Service
from flows.servers.guarded_prefect import client_auth, command, mend_prefect, settings
from flows.servers.ports import LOOPBACK, require_free
from flows.settings import DEFAULT_HOME, mlflow_environment
from lce_core.access import SECRET_VARIABLE, login_link, server_secret
from lce_core.store.odd_files import make_folder
from tasks import tracking

DEFAULT_PORT = 4200
"""Port of Prefect's server that the checkout's pyproject.toml names."""
PORT_OPTIONS = {"server": "--port", "mlflow": "--mlflow-port"}

_ROOT = Path(__file__).parents[2]


def up(home: Path, ports: Mapping[str, int]) -> list[Service]:
    """Start the services that are not running, and wait until all are ready.

    If one does not start, the services that this call started are stopped again.
    """
    home = home.absolute()
    make_folder(home / "services")
    with FileLock(home / "services" / ".lock"):
        before, since = {name: daemons.find(home, name) for name in NAMES}, datetime.now(UTC)
        for name, option in PORT_OPTIONS.items():
            if before[name] is None:
                require_free(ports[name], option)
        try:
            server = before["server"] or _start_server(home, ports["server"])
            mlflow = before["mlflow"] or _start_mlflow(home, ports["mlflow"])
            _wait_until(server, lambda: daemons.answers(f"{server.url}/health", _secret(home)))
            worker = before["worker"] or _start_worker(home, server)
            _wait_until(mlflow, lambda: daemons.answers(f"{mlflow.url}/health"))
            _wait_for_worker(home, server, worker, since)
        except BaseException:
            daemons.stop(home, [s for s in _running(home) if before[s.name] is None])
            raise
        return [server, mlflow, worker]


def down(home: Path) -> list[str]:
    home = home.absolute()
    running = _running(home)
    daemons.stop(home, running)
    daemons.stop_leftovers(home)
    return [service.name for service in running]


def address(home: Path, service: Service) -> str:
    """Return a link that opens a service's page, logged in; "running" for one without a page."""
    if service.name == "server":
        return login_link(str(service.url).removesuffix("/api"), _secret(home.absolute()))
    if service.name == "mlflow":
        return _mlflow_login(home, str(service.url), tracking.EXPERIMENTS_PATH)
    return service.url or "running"


def deployment_command(home: Path, server: Service) -> str:
    # The checkout's pyproject.toml enables the plug-in, and names the server of the default port.
    in_checkout = Path.cwd() == _ROOT and (_ROOT / "pyproject.toml").is_file()
    parts = [] if in_checkout else ["PREFECT_PLUGINS_ENABLED=true"]
    if not in_checkout or server.url != f"http://{LOOPBACK}:{DEFAULT_PORT}/api":
        parts.append(f"PREFECT_API_URL={server.url}")
    if home.absolute() != Path(DEFAULT_HOME).absolute():
        parts.append(f"LCE_HOME={shlex.quote(str(home.absolute()))}")  # may not be exported
    return " ".join([*parts, "prefect deployment run controlled-study"])


def study_pages(home: Path) -> dict[str, str]:
    names = tracking.studies_with_pages(home)
    found = {name: tracking.pages_of(home, name) for name in names}
    return {
        name: pages.methods
        if pages.team
        else _mlflow_login(home, pages.server, pages.methods.removeprefix(f"{pages.server}/"))
        for name, pages in found.items()
        if pages
    }


def _mlflow_login(home: Path, server: str, path: str) -> str:
    return login_link(server, server_secret(home, "mlflow"), f"/{path}")


def _running(home: Path) -> list[Service]:
    return [service for name in NAMES if (service := daemons.find(home, name))]


def _start_server(home: Path, port: int) -> Service:
    mend_prefect(home)
    url = f"http://{LOOPBACK}:{port}/api"
    return daemons.launch(home, "server", command(port), settings(url, _secret(home)), port, url)


def _secret(home: Path) -> str:
    return server_secret(home, "prefect")


def _start_mlflow(home: Path, port: int) -> Service:
    from tasks.projections import restore_mlflow  # loads DuckDB, which `lce down` does not need

    restore_mlflow(home)
    command = [sys.executable, "-m", "tasks.tracking.guarded_server", str(home), str(port)]
    environment = {SECRET_VARIABLE: server_secret(home, "mlflow")}
    return daemons.launch(home, "mlflow", command, environment, port, f"http://{LOOPBACK}:{port}")


def _start_worker(home: Path, server: Service) -> Service:
    environment = {
        "PREFECT_API_URL": str(server.url),
        **client_auth(_secret(home)),
        # With the default of 10 s a run could wait that long before it starts.
        "PREFECT_RUNNER_POLL_FREQUENCY": "2",
    }
    command = [sys.executable, "-m", "flows.serving"]
    return daemons.launch(home, "worker", command, environment | mlflow_environment(home))


def _wait_until(service: Service, is_ready: Callable[[], bool]) -> None:
    log, is_alive = Path(service.log), partial(daemons.process_of, service)
    daemons.wait_until(service.name, is_ready, is_alive, log, daemons.START_SECONDS)


def _wait_for_worker(home: Path, server: Service, worker: Service, since: datetime) -> None:
    url = f"{server.url}/deployments/name/controlled-study/controlled-study"

    def is_polling() -> bool:
        # The user may have enabled Prefect's CSRF protection, which lets only GET requests pass.
        polled = (daemons.ask(url, secret=_secret(home)) or {}).get("last_polled")
        return polled is not None and datetime.fromisoformat(polled) >= since

    _wait_until(worker, is_polling)
