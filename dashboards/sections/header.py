"""First screen: what the study expected, what came out, what to use and what to distrust."""

from collections.abc import Sequence

from markupsafe import Markup

from dashboards.charts.dots import dots_svg
from dashboards.charts.scatter import Axis, scatter_svg
from dashboards.claims.summary import Summary
from dashboards.claims.wording import registered
from dashboards.contents import Contents, grouped, select
from dashboards.families import Variant, base_context, benchmark_label, method_looks
from dashboards.figure import figure, paragraph, rendered

MOST_PANELS = 8
PICTURE = "Methods beyond the trained context"


def section(contents: Contents, found: Sequence[Summary]) -> Markup:
    run, first = contents.run[0], contents.studies[0]
    bases = (
        f"{row['base_model']} ({context})" if (context := base_context(row)) else row["base_model"]
        for row in contents.studies
    )
    return rendered(
        "header.html",
        study=contents.study,
        hypothesis=first["hypothesis"],
        registered=registered(contents.registrations, contents.settled),
        bases=[
            (one, [*map(Variant.of, own.overview)], _figures(own, one))
            for one in found
            for own in [contents.of(one.base_model)]
        ],
        facts={
            "base model": ", ".join(bases),
            "extended to": f"{first['target_context']:,} tokens",
            "seeds": str(run["seeds"]),
            "cells": f"{run['done']:,} of {run['cells']:,} done",
            "profile": run["profiles"] or "-",
            "date": f"{run['last']:%Y-%m-%d}" if run["last"] else "nothing has been run yet",
        },
    )


def _figures(contents: Contents, one: Summary) -> Markup:
    picture = dot_plot(contents, one)
    caption = (
        "Means with 95 % intervals, where all seeds are done. Best first, by the first column;"
        " hollow: frozen weights."
    )
    shown = figure(PICTURE, caption, [picture], kind="wide") if picture else Markup()
    return shown + gains(contents, one)


def gains(contents: Contents, one: Summary) -> Markup:
    """Return a figure of what methods lose within the trained context and gain beyond it.

    If no method has both values, return the reasons instead.
    """
    methods = [row for row in contents.gains if row["variant"] != "none"]
    if methods and all(row["reason"] for row in methods):
        reasons = "; ".join(
            f"{', '.join(dict.fromkeys(benchmark_label(row['benchmark']) for row in rows))}: {why}"
            for why, rows in grouped(methods, "reason").items()
        )
        return paragraph(
            "No method has both a loss within the trained context and a gain beyond it"
            f" ({reasons})."
        )
    looks = method_looks(contents.overview, contents.families)
    pictures = []
    for name in one.benchmarks:
        rows = select(contents.gains, benchmark=name, reason=None)
        points = {Variant.of(row): (row["lost"], row["gained"]) for row in rows}
        if len(points) > 1:
            first, label = rows[0], benchmark_label(name)
            unit = first["unit"]
            axes = (
                Axis(f"lost at {first['within_length']:,}, {unit}", higher_is_better=False),
                Axis(f"gained at {first['beyond_length']:,}, {unit}", higher_is_better=True),
            )
            pictures.append(scatter_svg(f"{label}: gain against loss", axes, looks, points))
    if not pictures:
        return Markup()
    caption = (
        "Against the model without a method. Best at the top left; labelled: no other method gains"
        " as much and loses as little."
    )
    return figure("Lost within the trained context, gained beyond", caption, pictures)


def dot_plot(contents: Contents, one: Summary) -> str:
    panels = [
        rows
        for name in one.benchmarks
        for length in one.lengths
        if (rows := one.scores(name, length))
    ][:MOST_PANELS]
    if not panels:
        return ""
    order = list(dict.fromkeys(Variant.of(row) for panel in panels for row in panel))
    return dots_svg(PICTURE, panels, order, method_looks(contents.overview, contents.families))
