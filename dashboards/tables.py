"""The report's tables as HTML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from catalog.formatting import number_text
from dashboards.contents import Contents, Row, select
from dashboards.figures import Chart
from dashboards.lines import Gap, Line

_BENCHMARKS = ("perplexity", "needle", "passkey", "many_shot", "longbench", "ruler")
_BEYOND = ("perplexity", "needle", "passkey")
_LOWER_IS_BETTER = {"perplexity"}


def overview_table(contents: Contents, base_model: str) -> str:
    """One row per method: benchmarks at the target context, and at the longest length."""
    rows = select(contents.overview, base_model=base_model)
    target, longest = rows[0]["target_context"], rows[0]["longest_length"]
    groups = [(target, [name for name in _BENCHMARKS if _asked(contents, name, target)])]
    if longest not in (None, target):
        beyond = [name for name in _BEYOND if _asked(contents, name, longest)]
        groups.append((longest, beyond))
    groups = [(length, names) for length, names in groups if names]
    heads = "".join(
        f'<th colspan="{len(names)}" scope="colgroup" class="group">at {length} tokens</th>'
        for length, names in groups
    )
    names = "".join(
        f'<th scope="col" class="number">{_name(name)}</th>'
        for _, group in groups
        for name in group
    )
    body = []
    for row in rows:
        cells = [
            _score_cell(contents, row, name, length) for length, group in groups for name in group
        ]
        method = escape(row["method"])
        body.append(
            f'<tr data-method="{method}"><th scope="row">{method}</th>'
            f"<td>{'frozen' if row['frozen'] else 'tuned'}</td>"
            f"<td>{'exact' if row['exact_attention'] else 'approximate'}</td>{''.join(cells)}</tr>"
        )
    return (
        f'<table class="overview"><thead><tr><td colspan="3"></td>{heads}</tr>'
        '<tr><th scope="col">method</th><th scope="col">weights</th><th scope="col">attention</th>'
        f"{names}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    )


def numbers_table(chart: Chart, lines: Sequence[Line]) -> str:
    """The numbers behind a chart: a row per line, a column per x."""
    xs = sorted(
        {point.x for line in lines for point in line.points}
        | {gap.x for line in lines for gap in line.gaps}
    )
    body = []
    for line in lines:
        values = {point.x: number_text(point.value) for point in line.points}
        values |= {gap.x: _gap_text(gap) for gap in line.gaps}
        cells = "".join(f'<td class="number">{values.get(x, "")}</td>' for x in xs)
        body.append(f'<tr><th scope="row">{escape(line.label)}</th>{cells}</tr>')
    heads = "".join(f'<th scope="col" class="number">{x}</th>' for x in xs)
    return (
        f'<table><thead><tr><th scope="col">{escape(chart.x_name)}</th>{heads}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table>"
    )


def missing_table(contents: Contents) -> str:
    """Cells without a result, those with the same reason in one row."""
    rows = (
        (
            f'<span class="status {row["status"]}">{row["status"]}</span>',
            escape(row["base_model"]),
            escape(_label(row)),
            escape(row["benchmarks"]),
            _listed(row["eval_lengths"]),
            _listed(row["seeds"]),
            str(row["cells"]),
            escape(row["reason"] or ""),
        )
        for row in contents.missing
    )
    heads = ("status", "base model", "method", "benchmarks", "lengths", "seeds", "cells", "reason")
    return _plain_table(heads, rows)


def environment_table(contents: Contents) -> str:
    """Machines, code and libraries that computed the cells."""
    rows = (
        (
            _commit(row),
            escape(row["host"] or ""),
            escape(", ".join(filter(None, (row["accelerators"], row["cpu"])))),
            escape(f"Python {row['python']}, {_versions(row['libraries'])}"),
            str(row["num_artifacts"]),
            f"{row['first_used']:%Y-%m-%d %H:%M} to {row['last_used']:%Y-%m-%d %H:%M} UTC",
        )
        for row in contents.environments
    )
    return _plain_table(("commit", "host", "hardware", "software", "cells", "used"), rows)


def _asked(contents: Contents, benchmark: str, length: int) -> bool:
    return bool(select(contents.benchmarks, benchmark=benchmark, eval_length=length))


def _score_cell(contents: Contents, method: Row, name: str, length: int) -> str:
    axes = {axis: method[axis] for axis in ("base_model", "method", "frozen")}
    found = select(contents.benchmarks, benchmark=name, eval_length=length, **axes)
    if not found:
        return '<td class="number none" title="not in the study"></td>'
    (row,) = found
    place = f'data-benchmark="{name}" data-length="{length}"'
    if row["value"] is None:
        return f'<td class="number" {place}>{_incomplete(row)}</td>'
    text = number_text(row["value"])
    if row["is_best"]:
        text = f'<strong title="best of the column">{text}</strong>'
    best = " best" if row["is_best"] else ""
    return f'<td class="number{best}" {place} data-value="{row["value"]!r}">{text}</td>'


def _incomplete(row: Row) -> str:
    said = (
        f'<span class="status {row["status"].partition(",")[0]}"'
        f' title="{escape(row["missing"])}">{row["status"]}</span>'
    )
    if row["value_of_done"] is None:
        return said
    done = f"{row['num_done']} of {row['num_planned']} cells"
    return f"{said}<br><small>{done}: ({number_text(row['value_of_done'])})</small>"


def _gap_text(gap: Gap) -> str:
    mean = "" if gap.value_of_done is None else f": ({number_text(gap.value_of_done)})"
    seeds = f"{gap.num_seeds} of {gap.num_planned}"
    return f'<small title="{escape(gap.missing)}">{seeds}{mean}</small>'


def _plain_table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _commit(row: Row) -> str:
    if row["git_commit"] is None:
        return "not from a checkout"
    dirty = " with uncommitted changes" if row["git_dirty"] else ""
    return f"<code>{escape(row['git_commit'][:12])}</code>{dirty}"


def _versions(libraries: str) -> str:
    versions: Mapping[str, str] = json.loads(libraries)
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))


def _label(row: Row) -> str:
    return f"{row['method']}{'' if row['frozen'] else ' tuned'}"


def _name(benchmark: str) -> str:
    arrow = "lower" if benchmark in _LOWER_IS_BETTER else "higher"
    sign = "&#8595;" if arrow == "lower" else "&#8593;"
    name = benchmark.replace("_", " ")
    return f'{name}&nbsp;<span class="arrow" title="{arrow} is better">{sign}</span>'


def _listed(values: Sequence[int]) -> str:
    return ", ".join(str(value) for value in values)
