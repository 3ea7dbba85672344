"""Two sections: the cells without a result, and the machines and commands to repeat the study."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape

from dashboards.contents import Contents, Row
from dashboards.families import Variant
from dashboards.figure import heads, row_head, scrollable
from lce_core.study.states import STATES


def missing(contents: Contents) -> str:
    """Return a table of the cells without a result, one row per method and reason."""
    if not contents.missing:
        return ""
    count = sum(row["cells"] for row in contents.missing)
    cells = "1 cell has" if count == 1 else f"{count:,} cells have"
    rows = "".join(
        "<tr>"
        f"{row_head(Variant.of(row), {})}<td>{escape(row['base_model'])}</td>"
        f'<td><span class="status {row["status"]}">{row["status"]}</span></td>'
        f"<td>{escape(row['benchmarks'])}</td><td>{_listed(row['eval_lengths'])}</td>"
        f'<td>{_listed(row["seeds"])}</td><td class="number">{row["cells"]}</td>'
        f"<td>{escape(row['reason'] or '')}</td></tr>"
        for row in contents.missing
    )
    names = ("method", "base model", "status", "benchmarks", "lengths", "seeds", "cells", "reason")
    return f"<p>{cells} no result. {_legend(contents)}</p>{scrollable(heads(*names), rows)}"


def _legend(contents: Contents) -> str:
    found = {row["status"] for row in contents.missing}
    return "; ".join(f"<i>{state}</i>: {STATES[state]}" for state in STATES if state in found) + "."


def origin(contents: Contents) -> str:
    """Return the commands that reproduce the numbers and a table of machines and software."""
    commits = dict.fromkeys(row["git_commit"] for row in contents.environments if row["git_commit"])
    commands = [
        *(f"git checkout {commit}" for commit in list(commits)[-1:]),
        "make .venv/installed",  # this target exists in older commits as well
        "export LCE_HOME=$PWD/lce-home-again  # a new home, so that everything is computed again",
        f".venv/bin/lce run {contents.studies[0]['arguments']}",
        f".venv/bin/lce sql \"FROM scores WHERE study = '{contents.study}'\"",
    ]
    rows = "".join(map(_environment, contents.environments))
    names = ("commit", "host", "hardware", "software", "cells", "used")
    table = scrollable(heads(*names), rows) if rows else ""
    return f'<pre tabindex="0">{escape(chr(10).join(commands))}</pre>{table}'


def _environment(row: Row) -> str:
    software = f"Python {row['python']}, {_versions(row['libraries'])}"
    return (
        f'<tr><th scope="row">{_commit(row)}</th>'
        f"<td>{escape(row['host'] or '')}</td>"
        f"<td>{escape(row['hardware'])}</td><td>{escape(software)}</td>"
        f'<td class="number">{row["num_artifacts"]:,}</td>'
        f"<td>{row['first_used']:%Y-%m-%d %H:%M} to {row['last_used']:%Y-%m-%d %H:%M} UTC</td></tr>"
    )


def _commit(row: Row) -> str:
    if row["git_commit"] is None:
        return "not from a checkout"
    dirty = " with uncommitted changes" if row["git_dirty"] else ""
    return f"<code>{escape(row['git_commit'][:12])}</code>{dirty}"


def _versions(libraries: str) -> str:
    versions: Mapping[str, str] = json.loads(libraries)
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))


def _listed(values: list[int]) -> str:
    return ", ".join(f"{value:,}" for value in values)
