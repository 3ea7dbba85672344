"""Dot plot as SVG: a row per method, a panel per benchmark and length, with intervals."""

from collections.abc import Iterator, Mapping, Sequence

from catalog.palette import Look
from dashboards.charts.marks import colours, dot, opening, row_data, text
from dashboards.charts.scales import Scale, WithTicks, linear, logarithmic
from dashboards.contents import Row
from dashboards.families import Variant
from lce_core import formats

NAMES, GAP, TOP, ROW, BOTTOM = 190.0, 24.0, 40.0, 17.0, 24.0
WIDTH, MOST = 1180.0, 300.0
"""Width of the whole chart, and the largest one of a panel."""
_WIDE_RANGE = 5.0
"""Panels whose largest value is this many times the smallest have a logarithmic axis."""


Panel = Sequence[Row]


def dots_svg(
    title: str, panels: Sequence[Panel], order: Sequence[Variant], looks: Mapping[str, Look]
) -> str:
    wide = min(MOST, (WIDTH - NAMES) / len(panels) - GAP)
    width = NAMES + len(panels) * (wide + GAP)
    base = TOP + ROW * len(order)
    places = {one: TOP + ROW * (number + 0.5) for number, one in enumerate(order)}
    parts = [opening(title, width, base + BOTTOM, "dots")]
    for one, y in places.items():
        parts.append(text(one.label, NAMES - 12, y + 4, "end", NAMES - 14))
        parts.append(f'<path class="grid" d="M{NAMES:g} {y:g}H{width - GAP:g}"/>')
    for number, panel in enumerate(panels):
        start = NAMES + number * (wide + GAP)
        parts += _panel(panel, (start, start + wide), base, places, looks)
    return "".join([*parts, "</svg>"])


def _panel(
    panel: Panel,
    ends: tuple[float, float],
    base: float,
    places: Mapping[Variant, float],
    looks: Mapping[str, Look],
) -> Iterator[str]:
    scale, ticks = _scale(panel, *ends)
    benchmark, length = panel[0]["benchmark"], panel[0]["eval_length"]
    start, room = ends[0], ends[1] - ends[0]
    yield text(benchmark.replace("_", " "), start, 13, "panel-title small", room)
    yield text(f"{length:,} tokens", start, 28, "tick", room)
    last = None
    for tick in ticks:
        x = scale(tick)
        yield f'<path class="grid" d="M{x:g} {TOP:g}V{base:g}"/>'
        if last is None or x - last > 30:  # so that labels do not overlap
            yield text(formats.tick(tick), x, base + 14, "tick middle")
            last = x
    for row in panel:
        one = Variant.of(row)
        x, y, look = scale(row["value"]), places[one], looks[one.method]
        interval = [row["ci_low"], row["ci_high"]]
        known = None not in interval
        if known:
            left, right = (scale(min(max(end, scale.low), scale.high)) for end in interval)
            yield (
                f'<path class="gap look" {colours(look)} {row_data(one)}'
                f' d="M{left:g} {y:g}H{right:g}"/>'
            )
        shown = formats.score(row["value"])
        if known:
            shown += f" [{formats.score(interval[0])}, {formats.score(interval[1])}]"
        sentence = f"{one.label}, {benchmark} at {length:,}: {shown}"
        facts = {"benchmark": benchmark, "length": length, "value": row["value"]}
        yield dot(one, look, (x, y), sentence, **facts, low=interval[0], high=interval[1])


def _scale(rows: Sequence[Row], start: float, end: float) -> WithTicks:
    """Return the axis: 0 to 1 for accuracies, logarithmic for values of very different sizes."""
    if rows[0]["unit"] == "accuracy":
        return Scale(0.0, 1.0, start, end), [0.0, 0.5, 1.0]
    values = [row["value"] for row in rows]
    ends = [end for row in rows for end in (row["ci_low"], row["ci_high"]) if end is not None]
    if min(values) > 0 and max(values) / min(values) > _WIDE_RANGE:
        return logarithmic(values, start, end)
    return linear([*values, *ends], start, end)
