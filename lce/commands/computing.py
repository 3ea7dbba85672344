"""Commands that compute: `lce run`, `lce worker`, `lce join`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from lce.commands.options import (
    EVERY,
    AcceptPluginChange,
    Budget,
    RetryFailed,
    Select,
    Study,
    with_execution,
)
from lce_core.environment import allocator_settings, for_child
from lce_core.execution import Execution


@with_execution(*EVERY)
def run(
    how: Execution,
    context: typer.Context,
    study: Study,
    select: Select = "",
    retry_failed: RetryFailed = False,
    budget: Budget = "",
    accept_plugin_change: AcceptPluginChange = False,
) -> None:
    """Compute the missing cells of a study, then print its overview."""
    from flows.work import RunOptions
    from lce.running import run_study

    options = RunOptions(select, retry_failed, budget, accept_plugin_change)
    run_study(study, how, options, context.obj)


@with_execution(*EVERY)
def worker(
    how: Execution,
    context: typer.Context,
    studies: Annotated[
        list[str],
        typer.Argument(metavar="STUDY...", help="Studies' names, or study files."),
    ],
    select: Select = "",
    retry_failed: RetryFailed = False,
    no_wait: Annotated[
        bool,
        typer.Option(
            "--no-wait",
            help="Exit while other workers still compute steps; do not take these over if the"
            " workers die.",
        ),
    ] = False,
    grace: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="Time that running steps get to finish after SIGTERM.",
        ),
    ] = 15.0,
    accept_plugin_change: AcceptPluginChange = False,
) -> None:
    """Compute studies together with workers on other hosts; needs a shared folder, no Prefect."""
    from flows.pulling import pull_studies
    from flows.work import RunOptions

    options = RunOptions(
        select, retry_failed=retry_failed, accept_plugin_change=accept_plugin_change
    )
    pull_studies(studies, how, options, waits=not no_wait, grace=grace, end=context.obj)


def join(
    config: Annotated[
        Path, typer.Argument(help="File of `accelerate config`, the same as on the main machine.")
    ],
    machine_rank: Annotated[
        int | None,
        typer.Option(help="Number of this machine, from 1. Default: machine_rank of the file."),
    ] = None,
) -> None:
    """Add this machine's GPUs to the training runs of the main machine, until interrupted."""
    from flows.settings import joined_machine
    from lce_core.training import launching
    from lce_core.training.run import MODULE
    from tasks.machines import leased_gpus, visible_gpus

    machines = joined_machine(config, machine_rank)
    least = machines.processes_here if visible_gpus() else 0
    with leased_gpus(least, least) as gpus:
        os.environ.update(for_child(os.environ) | allocator_settings(os.environ))
        if gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        launching.join(MODULE, machines)
