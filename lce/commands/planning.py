"""Commands that show a study's state and compute nothing: `lce plan`, `status`, `watch`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated

import typer

from flows.terminal import say
from lce.commands.options import (
    FOLDERS,
    AcceptPluginChange,
    Budget,
    Select,
    Study,
    with_execution,
)
from lce_core.execution import Execution


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
        chosen = within_budget(found.plan, found.states, how, budget, device_type)
        found = replace(found, plan=chosen.plan)
    tests = expected.comparisons(found.plan, how.data_folders) if power else []
    seeds = expected.planned_seeds(found.plan)
    if json_form:
        output = planning.as_json(found, device_type)
        if chosen:
            output["budget"] = chosen.to_json()
        if power:
            output["power"] = expected.as_json(tests, seeds, options)
            prices = found.prices(device_type)
            output["designs"] = designs.as_json(found.plan, prices, options, tests)
        say(json.dumps(output, indent=1))
        return
    plan_view.show(found, every_cell=cells, device=device_type)
    for line in chosen.lines() if chosen else ():
        say(line)
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
