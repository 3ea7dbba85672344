"""Run the checks that a plug-in must pass, and report the result of each; used by `lce check`."""

import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from lce_core.benchmarks import BENCHMARKS
from lce_core.contracts import benchmarks, methods, plugins
from lce_core.contracts.benchmark_cases import Case, Data, cases
from lce_core.errors import LceError
from lce_core.methods import METHODS
from lce_core.registry import Plugin, Registry

Trial = tuple[Callable[..., None], Sequence[tuple[Any, ...]]]
"""A check function, and the arguments of each call to make."""


@dataclass(frozen=True)
class Finding:
    """Result of one check of a plug-in."""

    check: str
    """The check function's name in words; "loading" or "examples" before the checks."""
    about: str
    """First line of the check function's docstring."""
    fault: str


def findings(registry: Registry[Any], name: str, data: Data) -> Iterator[Finding]:
    """Run every check of a plug-in and yield its result, or only the error of its loading."""
    loaded: list[type[Plugin]] = []
    fault = _fault(lambda: loaded.append(registry.load(name)))
    yield Finding("loading", "The file is a plug-in without missing parts.", fault)
    for plugin in loaded:
        tried: list[Trial] = []
        if fault := _fault(lambda: tried.extend(trials(registry, plugin, data))):  # noqa: B023
            yield Finding("examples", "Every profile accepts an entry of EXAMPLES.", fault)
        for check, calls in tried:
            about = (check.__doc__ or "").partition("\n")[0]
            found = (_fault(check, *arguments) for arguments in calls)
            fault = next(filter(None, found), "")
            yield Finding(check.__name__.removeprefix("check_").replace("_", " "), about, fault)


def trials(registry: Registry[Any], plugin: type[Any], data: Data) -> list[Trial]:
    if registry is METHODS:
        return [(one, [(plugin, e) for e in plugin.examples]) for one in methods.CHECKS]
    if registry is BENCHMARKS:
        every = [(case,) for case in cases(plugin, data)]
        return [(one, every) for one in benchmarks.checks(plugin)]
    return [
        (plugins.check_source, [(plugin,)]),
        (plugins.check_description, [(plugin,)]),
        (plugins.check_evidence, [(registry, plugin)]),
        (plugins.check_identity, [(registry, plugin, example) for example in plugin.examples]),
    ]


def _fault(call: Callable[..., object], *arguments: Any) -> str:
    try:
        # Threads cost more time than they save in models this small.
        with threadpool_limits(1), torch.no_grad():
            call(*arguments)
    except LceError as error:
        message = str(error)
    except AssertionError as error:
        message = str(error) or _place(error)
    except Exception as error:  # noqa: BLE001 - whatever a plug-in's code raises is a finding
        message = f"{type(error).__name__}: {error} ({_place(error)})"
    else:
        return ""
    return message + "".join(map(_tried, arguments))


def _place(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}, line {last.lineno}: {last.line}"


def _tried(argument: object) -> str:
    if isinstance(argument, Case):
        example = f" and {dict(argument.example)}" if argument.example else ""
        return f" [profile {argument.profile}{example}]"
    return f" [{argument}]" if isinstance(argument, dict) and argument else ""
