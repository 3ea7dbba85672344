"""Commands that run a study or show its state: `lce run`, `worker`, `join`, `plan`, ..."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from flows.terminal import say
from lce.commands.options import (
    EVERY,
    FOLDERS,
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
        list[str], typer.Argument(metavar="STUDY...", help="Studies' names, or study files.")
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
            min=0, metavar="SECONDS", help="Time that running steps get to finish after SIGTERM."
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


@with_execution(*FOLDERS, "execution")
def plan(
    how: Execution,
    study: Study,
    json_form: Annotated[bool, typer.Option("--json", help="Print every cell as JSON.")] = False,
    cells: Annotated[bool, typer.Option("--cells", help="Print a line for every cell.")] = False,
    power: Annotated[
        bool,
        typer.Option(
            "--power", help="Print which expectations can be decided, and what other designs cost."
        ),
    ] = False,
    detect: Annotated[
        str | None,
        typer.Option(
            help='Print the cheapest design that detects a difference, such as "0.05 accuracy".'
            " Implies --power."
        ),
    ] = None,
    variance_ratio: Annotated[
        float,
        typer.Option(
            help="Assumed standard deviation between seeds, in standard errors over one seed's"
            " prompts. Implies --power."
        ),
    ] = 1.0,
    prompts: Annotated[
        bool, typer.Option("--prompts", help="Build all prompts and print their problems.")
    ] = False,
    device_type: Annotated[
        str | None,
        typer.Option(help="Predict times for a100, h100, h200 or cpu. Default: this machine."),
    ] = None,
    select: Select = "",
    budget: Budget = "",
    accept_plugin_change: AcceptPluginChange = False,
) -> None:
    """Show what `lce run` would compute, why, and how long it takes; compute nothing."""
    from flows.plans.budget import within_budget
    from lce.views import designs, plan_view, planning
    from lce.views import power as expected

    options = expected.Options.of(detect, variance_ratio)
    power = power or options != expected.Options()
    found = planning.inspect_study(study, how, select, accept_plugin_change=accept_plugin_change)
    chosen = None
    if budget:
        chosen = within_budget(found.plan, found.states, found.execution, budget, device_type)
        found = replace(found, plan=chosen.plan)
    tests = expected.comparisons(found.plan, found.execution.data_folders) if power else []
    seeds = expected.planned_seeds(found.plan)
    if json_form:
        output = planning.as_json(found, device_type)
        if chosen:
            output["budget"] = chosen.to_json()
        if power:
            output["power"] = expected.as_json(tests, seeds, options)
            prices = found.prices(device_type)
            output["designs"] = designs.as_json(found.plan, prices, options, tests)
        if prompts:
            output["prompts"] = [*planning.checked_prompts(found)]
        say(json.dumps(output, indent=1))
        return
    plan_view.show(found, every_cell=cells, device=device_type)
    for line in chosen.lines() if chosen else ():
        say(line)
    if prompts:
        say("\n".join(plan_view.prompt_lines(found)))
    if power:
        say("\n".join(expected.lines(tests, seeds, options)))
        prices = found.prices(device_type)
        say("\n".join(designs.lines(found.plan, prices, options, tests)))


@with_execution(*FOLDERS)
def status(
    how: Execution,
    study: Study,
    json_form: Annotated[bool, typer.Option("--json", help="Print the progress as JSON.")] = False,
) -> None:
    """Show a study's progress: cells by state, time left, running steps and failures."""
    from lce.views import planning, status_view

    found = planning.inspect_study(study, how)
    if json_form:
        say(json.dumps(status_view.as_json(found), indent=1))
    else:
        status_view.show_status(found)


@with_execution(*FOLDERS)
def watch(how: Execution, study: Study) -> None:
    """Show `lce status` and refresh it until the study is finished; exit with 1 if cells failed."""
    from lce.views import planning, status_view

    if not status_view.watch(planning.inspect_study(study, how)):
        raise typer.Exit(1)
