"""Heat maps and curves as SVG files for papers and for pages without scripts.

A row of the heat map is a method, a column a length; a panel holds one benchmark. The colour map is
cividis, which is readable with any kind of colour vision, and each field shows its number. Curves
are small multiples: a panel shows one method, with the control in grey behind it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure

from dashboards.contents import Row, select
from dashboards.many_shot import chance, spans_a_decade
from lce_core import formats
from lce_core.study.variants import variant_label

mpl.use("svg")
CONTROL = "none"
INK, GREY, LINE = "#1b1f24", "#9aa0a6", "#00429d"
MAP = "cividis"
ABSENT = "#eeeeee"
PANELS_IN_A_ROW = 4
BINS_OF_A_CURVE = 24
"""Maximum number of points per curve. Finer bins are averaged, because they are too noisy to read.
"""
_STYLE: Any = {
    "font.size": 9.0,
    "text.color": INK,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.hashsalt": "lce",  # the same picture gives the same bytes
    "svg.fonttype": "none",
}


def heat_maps(rows: Sequence[Row], trained_context: int | None, out: Path) -> None:
    """Write one SVG with a panel per benchmark: methods down, lengths across.

    Args:
      rows: rows of one base model from `dashboards.comparable`, in the study's order.
      trained_context: trained context in tokens, drawn as a line between columns; None if unknown.
      out: the file.
    """
    methods = list(dict.fromkeys((row["method"], row["frozen"]) for row in rows))
    panels = [select(rows, benchmark=name) for name in dict.fromkeys(r["benchmark"] for r in rows)]
    lengths = [sorted({row["eval_length"] for row in panel}) for panel in panels]
    with mpl.rc_context(_STYLE):
        figure = Figure(
            figsize=(1.9 + sum(0.75 * len(at) + 0.35 for at in lengths), 0.9 + 0.27 * len(methods)),
            layout="constrained",
        )
        grid = figure.subplots(
            1, len(panels), squeeze=False, width_ratios=[len(at) for at in lengths]
        )[0]
        for number, (axes, panel, at) in enumerate(zip(grid, panels, lengths, strict=True)):
            _heat_map(axes, panel, methods, at, trained_context)
            if number == 0:
                axes.set_yticks(range(len(methods)), [variant_label(*method) for method in methods])
            else:
                axes.set_yticks([])
        _save(figure, out)


def curves_by_position(rows: Sequence[Row], trained_context: int | None, out: Path) -> None:
    """Write negative log-likelihood against position as SVG, one small panel per method.

    Args:
      rows: rows of the view nll_by_position for one base model, task and length.
      trained_context: trained context in tokens, drawn as a line; None if unknown.
      out: the file.
    """
    longest = rows[0]["eval_length"]

    def behind(axes: Axes) -> None:
        if trained_context:
            axes.axvline(trained_context, color=GREY, linewidth=0.8, linestyle=":")

    with mpl.rc_context(_STYLE):
        figure = _small_multiples(_by_method(rows, _thinned), behind)
        for axes in figure.axes:
            axes.set_xticks([0, trained_context or 0, longest], ["0", "", f"{longest:,}"])
        dotted = f"dotted: the trained {trained_context:,}; " if trained_context else ""
        figure.supxlabel(f"position in tokens; {dotted}grey: {CONTROL}", fontsize=9)
        figure.supylabel("nats per token", fontsize=9)
        _save(figure, out)


def curves_by_shots(rows: Sequence[Row], out: Path) -> None:
    """Write accuracy against the number of examples as SVG, one small panel per method.

    Args:
      rows: rows of the query `shots` for one base model, from `many_shot.pictured`.
      out: the file.
    """
    shots, guess = sorted({row["shots"] for row in rows}), chance(rows)

    def behind(axes: Axes) -> None:
        if guess is not None:
            axes.axhline(guess, color=GREY, linewidth=0.8, linestyle=":")

    def points(mine: Sequence[Row]) -> list[tuple[float, float]]:
        # matplotlib breaks the line at NaN.
        found = {row["shots"]: row["value"] for row in mine}
        return [(at, math.nan if found[at] is None else found[at]) for at in sorted(found)]

    with mpl.rc_context(_STYLE):
        figure = _small_multiples(_by_method(rows, points), behind)
        for axes in figure.axes:
            axes.set_xscale("log" if spans_a_decade(rows) else "linear")
            axes.set_xticks([shots[0], shots[-1]], [f"{shots[0]:,}", f"{shots[-1]:,}"])
            axes.set_xticks([], minor=True)
        dotted = f"dotted: chance, {guess:g}; " if guess is not None else ""
        figure.supxlabel(f"examples in the prompt; {dotted}grey: {CONTROL}", fontsize=9)
        figure.supylabel("accuracy", fontsize=9)
        _save(figure, out)


def _by_method(
    rows: Sequence[Row], points: Callable[[Sequence[Row]], list[tuple[float, float]]]
) -> dict[tuple[str, bool], list[tuple[float, float]]]:
    return {
        method: points(select(rows, method=method[0], frozen=method[1]))
        for method in dict.fromkeys((row["method"], row["frozen"]) for row in rows)
    }


def _small_multiples(
    curves: Mapping[tuple[str, bool], list[tuple[float, float]]], behind: Callable[[Axes], None]
) -> Figure:
    """Draw a panel for each method, with the control in grey behind each one."""
    control = curves.get((CONTROL, True), [])
    shown = {method: curve for method, curve in curves.items() if method != (CONTROL, True)}
    shown = shown or dict(curves)
    columns = min(PANELS_IN_A_ROW, len(shown))
    lines = math.ceil(len(shown) / columns)
    figure = Figure(figsize=(2.3 * columns + 0.4, 1.7 * lines + 0.4), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for axes, (method, curve) in zip(grid, shown.items(), strict=False):
        behind(axes)
        axes.plot(*_xy(control), color=GREY, linewidth=1.2)
        axes.plot(*_xy(curve), color=LINE, linewidth=1.6)
        axes.set_title(variant_label(*method), fontsize=9, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[len(shown) :]:
        axes.set_visible(False)
    return figure


def _heat_map(
    axes: Axes,
    panel: Sequence[Row],
    methods: Sequence[tuple[str, bool]],
    lengths: Sequence[int],
    trained_context: int | None,
) -> None:
    values = {
        (methods.index((row["method"], row["frozen"])), lengths.index(row["eval_length"])): row
        for row in panel
    }
    known = [row["value"] for row in panel if row["value"] is not None]
    lower_is_better = any(row["higher_is_better"] is False for row in panel)
    norm = LogNorm(min(known), max(known)) if lower_is_better and known else Normalize(0, 1)
    colours = mpl.colormaps[f"{MAP}_r" if lower_is_better else MAP]
    for y in range(len(methods)):
        for x in range(len(lengths)):
            value = values[y, x]["value"] if (y, x) in values else None
            colour = ABSENT if value is None else colours(norm(value))
            axes.fill(
                [x - 0.5, x + 0.5, x + 0.5, x - 0.5], [y - 0.5] * 2 + [y + 0.5] * 2, color=colour
            )
            text = (
                "" if (y, x) not in values else "-" if value is None else formats.short_score(value)
            )
            ink = INK if value is None or colours(norm(value))[1] > 0.5 else "white"
            weight = "bold" if (y, x) in values and values[y, x]["is_best"] else "normal"
            axes.text(
                x, y, text, ha="center", va="center", color=ink, fontsize=8, fontweight=weight
            )
    within = sum(length <= (trained_context or length) for length in lengths)
    if 0 < within < len(lengths):
        axes.axvline(within - 0.5, color="white", linewidth=3)
    axes.set_xlim(-0.5, len(lengths) - 0.5)
    axes.set_ylim(len(methods) - 0.5, -0.5)
    axes.set_xticks(range(len(lengths)), [f"{length:,}" for length in lengths])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    better = "lower" if lower_is_better else "higher"
    axes.set_title(f"{panel[0]['benchmark']}\n{better} is better", fontsize=9)


def _thinned(rows: Sequence[Row]) -> list[tuple[float, float]]:
    """Average groups of neighbouring bins, skipping bins without a value."""
    known = [(row["position_bin"], row["nll"]) for row in rows if row["nll"] is not None]
    size = max(1, math.ceil(len(known) / BINS_OF_A_CURVE))
    groups = [known[start : start + size] for start in range(0, len(known), size)]
    return [
        (sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group))
        for group in groups
    ]


def _xy(curve: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in curve], [y for _, y in curve]


def _save(figure: Figure, out: Path) -> None:
    figure.savefig(out, format="svg", metadata={"Date": None})
