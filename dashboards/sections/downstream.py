"""Section: scatter plots of accuracy against perplexity at the same length."""

from markupsafe import Markup

from dashboards.charts.marks import key_html
from dashboards.charts.scatter import Axis, scatter_svg
from dashboards.contents import Contents, Row, grouped, select
from dashboards.families import Variant, benchmark_label, comparable, method_looks, ordered
from dashboards.figure import Table, figure
from lce_core.study.variants import weights_label

FEWEST = 3
"""A scatter plot is drawn only if at least this many methods have both scores."""


def downstream(contents: Contents) -> Markup:
    """Return a scatter plot for each benchmark of accuracy with `FEWEST` methods in common."""
    rows = [
        row for row in comparable(contents.benchmarks, contents.scores) if row["value"] is not None
    ]
    texts = [row for row in rows if row["unit"] == "perplexity"]
    target = contents.studies[0]["target_context"]
    looks = method_looks(contents.overview, contents.families)
    pictures, numbers = [], []
    drawn: set[Variant] = set()
    others = [r for r in rows if r["unit"] in ("accuracy", "percent") and r["higher_is_better"]]
    for name, own in grouped(others, "benchmark").items():
        pair = _shared(texts, own, target)
        if pair is None:
            continue
        text, length, points = pair
        names = benchmark_label(text), benchmark_label(name)
        title = f"{names[1]} at {length:,} tokens"
        axes = (
            Axis(names[0], higher_is_better=False, logarithmic=True),
            Axis(names[1], higher_is_better=True),
        )
        pictures.append(scatter_svg(title, axes, looks, points))
        drawn |= points.keys()
        for one, (x, y) in points.items():
            weights = weights_label(one.frozen)
            numbers.append((one.method, weights, length, names[0], x, names[1], y))
    if not pictures:
        return Markup()
    caption = Markup(
        "Each mark is a method; the best are at the top left. Labelled methods are on the Pareto"
        " front: no other method is better on one axis and at least as good on the other."
    )
    keys = [key_html(one, looks[one.method]) for one in ordered(contents) if one in drawn]
    caption += Markup(' <span class="keys">{}</span>').format(Markup("").join(keys))
    columns = ("method", "weights", "length", "text", "perplexity", "benchmark", "score")
    table = Table(columns, numbers)
    return figure("Perplexity against downstream scores", caption, pictures, table)


def _shared(
    texts: list[Row], rows: list[Row], target: int
) -> tuple[str, int, dict[Variant, tuple[float, float]]] | None:
    """Return the text, the length and the points of most methods; prefer the target length."""
    found = []
    for text, own in grouped(texts, "benchmark").items():
        for length, there in grouped(rows, "eval_length").items():
            xs = {Variant.of(row): row["value"] for row in select(own, eval_length=length)}
            points = {
                one: (xs[one], row["value"]) for row in there if (one := Variant.of(row)) in xs
            }
            if len(points) >= FEWEST:
                found.append((text, length, points))
    return max(found, key=lambda one: (len(one[2]), one[1] == target, one[1]), default=None)
