"""Build the description and the saved views that the MLflow UI shows for a study.

By default MLflow's UI draws only the first ten runs. A saved view selects the runs and charts to
show. It is an experiment's tag with the state of the page as JSON. The format is undocumented, so a
browser test checks the result.

Source: github.com/mlflow/mlflow, mlflow/server/js/src/experiment-tracking/components/
experiment-page: utils/savedViewEnvelope.ts, models/ExperimentPageUIState.tsx (3.17).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from catalog.mlflow_pages import METHODS_VIEW, SEEDS_VIEW, view_path
from lce_core.study.variants import variant_name
from tasks.tracking.study_content import INTERVAL, KIND, METHOD, SEED, at_target_name

_SHARED = "mlflow.sharedViewState."
MAX_HYPOTHESIS = 10_000
"""A hypothesis is cut off here: MLflow limits a tag to 20,000 characters."""
VIEW_TAGS = (_SHARED + METHODS_VIEW, _SHARED + SEEDS_VIEW)


def saved_views(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return the experiment's tags for two saved views: one of the methods, one of their seeds."""
    keys = ["row", "base_model"] if len(plan["base_contexts"]) > 1 else ["row"]
    by_row = {
        "aggregateFunction": "average",
        "groupByKeys": [{"mode": "param", "groupByData": key} for key in keys],
    }
    grouped = {"groupBy": by_row, "groupsExpanded": _folded(plan, keys)}
    states = (_state(plan, METHOD), {**_state(plan, SEED), **grouped})
    names = ("All methods, one line each", "Seeds, grouped by method")
    return {
        # The UI lists the later view first.
        tag: _json({"name": name, "createdAt": -number, "state": _json(state)})
        for number, (tag, name, state) in enumerate(zip(VIEW_TAGS, names, states, strict=True))
    }


def _state(plan: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the page state of a view of METHOD or SEED runs; the UI has defaults."""
    target = plan["target_context"]
    at_target = (cell["benchmark"] for cell in plan["cells"] if cell["eval_length"] == target)
    columns = [f"metrics.`{at_target_name(name)}`" for name in dict.fromkeys(at_target)]
    return {
        "searchFilter": f"tags.`{KIND}` = '{kind}'",
        # Do not sort by start time, the default: the UI would fold children under their parent.
        "orderByKey": "params.`row`",
        "orderByAsc": True,
        "runsHiddenMode": "SHOW_ALL",
        "selectedColumns": columns,
        # The UI adds the charts itself, and appends sections that are not listed here.
        "compareRunCharts": [],
        "compareRunSections": _sections(plan, kind),
        "isAccordionReordered": True,
    }


def _sections(plan: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return chart sections: scores by length, means at the target, single lengths, intervals."""
    lengths: dict[str, set[int]] = {}
    for cell in plan["cells"]:
        lengths.setdefault(cell["benchmark"], set()).add(cell["eval_length"])
    curves = [name for name, found in lengths.items() if len(found) > 1]
    points = [name for name, found in lengths.items() if len(found) == 1]
    names = [*curves, "summary", *points]
    several = len({cell["seed"] for cell in plan["cells"]}) > 1
    widths = [f"{INTERVAL}/{name}" for name in names] if kind == METHOD and several else []
    return [
        {
            "uuid": name,
            "name": name,
            "columns": 2,  # of the UI's default, 3, each has 220 pixels of a page of 1,280
            "display": name not in widths,
            "isReordered": False,
            "deleted": False,
            "isGenerated": True,
        }
        for name in (*names, *widths)
    ]


def _folded(plan: Mapping[str, Any], keys: Sequence[str]) -> dict[str, bool]:
    groups = {}
    for cell in plan["cells"]:
        values = {**cell, "row": variant_name(cell["method"], cell["frozen"])}
        groups[",".join(f"param.{key}.{values[key]}" for key in keys)] = False
    return groups


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True)


def description(plan: Mapping[str, Any], experiment_id: str) -> str:
    methods, seeds = (view_path(experiment_id, view) for view in (METHODS_VIEW, SEEDS_VIEW))
    hypothesis = plan["hypothesis"].strip()
    if len(hypothesis) > MAX_HYPOTHESIS:
        hypothesis = f"{hypothesis[:MAX_HYPOTHESIS]} ..."
    # The UI shows only the first paragraph of a long description.
    return (
        f"**[All methods, one line each]({methods})**; [seeds, grouped by method]({seeds})."
        f" {hypothesis}\n\n"
        "Each run is one row of the study's table: the mean over its seeds. The runs of the seeds"
        " are folded below it. A metric is `benchmark/task`; its step is the evaluated length in"
        f" tokens. The target context is {plan['target_context']} tokens; `summary/` contains the"
        " mean of each benchmark over its tasks at this length. `lce` writes this experiment from"
        " the store and overwrites edits."
    )
