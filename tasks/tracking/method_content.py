"""A row of the study as one run: the mean over its seeds, and how far it is from that of others.

There is a mean only where every planned seed has a value, as in the catalog: a mean over other
seeds than the next method's is none to compare.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from catalog.mlflow_pages import row_name
from tasks.tracking.content import COLOUR, KIND, METHOD, NOTE, RUN_KEY, Metric, RunContent
from tasks.tracking.seed_content import key_of, of_which_model

INTERVAL = "seed_interval"
"""First part of the name of a metric that is half the width of another's interval."""
MEANS = "means.csv"
"""The artifact with each mean, its interval and what it is the mean of."""


def method_content(
    plan: Mapping[str, Any],
    planned: Mapping[int, Sequence[Mapping[str, Any]]],
    seeds: Sequence[RunContent],
    colour: str,
) -> RunContent:
    """The run of a row.

    Args:
      plan: the study's plan.json.
      planned: cells of the row, by seed.
      seeds: the runs of those seeds that have a finished cell; at least one.
      colour: of its line, as #rrggbb.
    """
    first = next(iter(planned.values()))[0]
    row, key = row_name(first["method"], first["frozen"]), key_of(plan, first)
    scored = {cell["benchmark"] for cells in planned.values() for cell in cells} | {"summary"}
    groups: dict[tuple[str, int], list[Metric]] = defaultdict(list)
    for seed in seeds:
        for metric in seed.metrics:
            groups[metric.key, metric.step].append(metric)
    whole = {at: group for at, group in groups.items() if len(group) == len(planned)}
    metrics, lines = [], ["metric,step,mean,low,high,seeds\n"]
    for (name, step), group in sorted(whole.items()):
        when = max(metric.timestamp for metric in group)
        values = [metric.value for metric in group]
        mean = math.fsum(values) / len(values)
        metrics.append(Metric(name, mean, when, step))
        if name.partition("/")[0] not in scored:
            continue
        half = _half_width(values)
        low, high = ("", "") if half is None else (mean - half, mean + half)
        lines.append(f'"{name}",{step},{mean},{low},{high},{len(values)}\n')
        if half is not None:
            metrics.append(Metric(f"{INTERVAL}/{name}", half, when, step))
    return RunContent(
        key=key,
        parent=None,
        name=f"{row}{of_which_model(plan, first['base_model'])}",
        start=min(seed.start for seed in seeds),
        end=max(seed.end for seed in seeds),
        params={**dict(_shared(seeds)), "seeds": ", ".join(map(str, planned))},
        metrics=tuple(sorted(metrics, key=lambda metric: (metric.key, metric.step))),
        tags={
            KIND: METHOD,
            "lce.study": plan["study"],
            RUN_KEY: key,
            COLOUR: colour,
            NOTE: _note(row, first, len(seeds), len(planned)),
        },
        files={MEANS: "".join(lines)},
    )


def _shared(seeds: Sequence[RunContent]) -> Iterator[tuple[str, str]]:
    """Params that are the same in every seed."""
    for key, value in seeds[0].params.items():
        if key != "seed" and all(seed.params.get(key) == value for seed in seeds):
            yield key, value


def _half_width(values: Sequence[float]) -> float | None:
    """Half the 95 % interval of the mean for other seeds; None with one seed."""
    if len(values) == 1:
        return None
    from lce_core.statistics.seeds import mean_over_seeds  # scipy, which takes a second to load

    found = mean_over_seeds([[value] for value in values], same_prompts=False)
    assert found.high is not None
    return found.high - found.value


def _note(row: str, first: Mapping[str, Any], begun: int, planned: int) -> str:
    seeds = "1 seed" if planned == 1 else f"{planned} seeds"
    missing = f" Only {begun} of them have begun." if begun < planned else ""
    return (
        f"**{row}** on {first['base_model']}: the mean over {seeds}, whose runs are"
        f" folded below this one; a point is drawn where all of them have it.{missing}"
        f" `{INTERVAL}/...` is half the width of its 95 % interval for other seeds, and {MEANS}"
        " has the bounds. A metric is `benchmark/task`; its step is the evaluated length in tokens."
    )
