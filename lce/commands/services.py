"""Commands for the local servers of Prefect and MLflow: `lce up`, `down`, `doctor`."""

from typing import Annotated

import typer

from flows.terminal import say

NAMES_OF_SERVICES = {"server": "Prefect UI", "mlflow": "MLflow UI", "worker": "worker"}


def up(
    port: Annotated[int, typer.Option(help="Port of the Prefect server.")] = 4200,
    mlflow_port: Annotated[int, typer.Option(help="Port of the MLflow UI.")] = 5000,
) -> None:
    """Start a Prefect server, a worker and the MLflow UI on 127.0.0.1."""
    from flows.servers import services
    from flows.settings import home

    running = services.up(home(), {"server": port, "mlflow": mlflow_port})
    for service in running:
        shown = services.address(home(), service)
        say(f"{NAMES_OF_SERVICES[service.name]:<10} {shown}")
    for study, page in services.study_pages(home()).items():
        say(f"  {study}, all methods: {page}")
    say(f"Run the toy study: {services.deployment_command(home(), running[0])}")
    say("Stop: lce down")


def down() -> None:
    """Stop the servers and the worker that `lce up` started."""
    from flows.servers import services
    from flows.settings import home

    stopped = services.down(home())
    say(f"stopped: {', '.join(stopped) or 'nothing was running'}")


def doctor() -> None:
    """Check versions, folders, servers and leftover processes; exit with 1 if a check fails."""
    from flows.servers import doctor
    from flows.settings import home

    checks = doctor.doctor(home())
    for name, check in checks.items():
        say(f"{'ok  ' if check.ok else 'FAIL'} {name}: {check.detail}")
        if not check.ok:
            say(f"     {check.remedy}")
    if not all(check.ok for check in checks.values()):
        raise typer.Exit(1)
