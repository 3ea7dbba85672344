"""`lce rope inspect --out FILE.svg`: plot the wavelength of each pair, and B_m by distance.

B_m is the sum of cos(m * frequency) over the rotated pairs. It measures how much attention favours
a similar token over a random one at a distance of m tokens (arXiv:2405.14591).
"""

import math
from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from dashboards.charts.scales import Scale
from lce.rope.inspection import Inspection
from lce_core.rope import Frequencies
from lce_core.rope.bound import discrimination_runs
from lce_core.rope.inspection import Head, Pair

WIDTH, HEIGHT = 900, 860  # pixels
LEFT, RIGHT, UPPER, LOWER = 92, 760, (110, 410), (490, 800)  # edges of the two plots
STEPS = 320
"""Maximum number of points of the B_m curve. Each point is the smallest B_m in one range of
distances."""
STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #57606a }
  .title { font-weight: 600; font-size: 16px; fill: #1f2328 }
  .panel { font-weight: 600; fill: #1f2328 }
  .grid { stroke: #e6e8ec } .zero { stroke: #57606a }
  .mark { stroke: #8c959f; stroke-dasharray: 4 4 } .limit { stroke: #bc4c00; stroke-dasharray: 4 4 }
  .limit-name { fill: #bc4c00 }
  .base { fill: none; stroke: #8c959f; stroke-width: 1.8 } .base-name { fill: #6e7781 }
  .method { fill: none; stroke: #3a5ccc; stroke-width: 1.8 }
  .many { stroke-width: 1; stroke-opacity: 0.5 } .band { fill: #3a5ccc; fill-opacity: 0.18 }
  .method-name { fill: #3a5ccc }
  .dot { fill: #3a5ccc } .dot.extrapolated, text.extrapolated { fill: #cf222e }
"""


def draw(found: Inspection) -> str:
    title = f"{found.method.plugin_name} on {found.model}"
    request, trained = found.lengths.request, found.lengths.trained
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="Rotary frequencies of {escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="#fff"/>',
        f'<text class="title" x="{LEFT}" y="34">{escape(title)}: {trained:,} tokens trained,'
        f" request of {request:,}</text>",
        f'<text x="{LEFT}" y="56"><tspan class="base-name">grey: the base model</tspan>,'
        f' <tspan class="method-name">blue: {_subject(found)}</tspan></text>',
        *_wavelengths(found),
        *_margins(found),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _subject(found: Inspection) -> str:
    if found.changes_attention_alone:
        return "nothing, because the method changes only attention"
    return "the method" if len(found.heads) == 1 else f"the method's {len(found.heads)} heads"


def _wavelengths(found: Inspection) -> Iterator[str]:
    base, request = found.base.pairs, found.lengths.request
    heads = () if found.changes_attention_alone else found.heads
    shown = [pair.wavelength_after for head in (found.base, *heads) for pair in _rotated(head)]
    largest = max(shown)
    top, bottom = UPPER
    y = Scale(1, max(largest, request) * 1.3, bottom, top, logarithmic=True)
    x = Scale(0, max(1, len(base) - 1), LEFT + 10, RIGHT - 10)
    yield _label(LEFT, top - 16, "Wavelength in tokens, by rotated pair", "panel")
    for power in range(int(math.log10(max(largest, request))) + 1):
        yield from _line_across(y(10**power), f"{10**power:,}", "grid")
    for number in range(0, len(base), max(1, len(base) // 8)):
        yield _label(x(number), bottom + 20, str(number), anchor="middle")
    lines = [(y(found.lengths.trained), f"trained {found.lengths.trained:,}", "mark")]
    lines.append((y(request), f"request {request:,}", "mark"))
    if len(heads) == 1 and heads[0].bound is not None:
        lines.append((y(max(1, heads[0].bound)), f"L_theta {heads[0].bound:,}", "limit"))
    yield from _named_lines(lines)
    yield _curve([(x(pair.pair), y(pair.wavelength_before)) for pair in base], "base")
    for head in heads:
        points = [(x(pair.pair), y(pair.wavelength_after)) for pair in _rotated(head)]
        if points:
            yield _curve(points, "method many" if len(heads) > 1 else "method")
        if len(heads) == 1:
            for (px, py), pair in zip(points, _rotated(head), strict=True):
                kind = " extrapolated" if pair.state == "extrapolated" else ""
                yield f'<circle class="dot{kind}" cx="{px:.1f}" cy="{py:.1f}" r="2.6"/>'
    if len(heads) == 1 and heads[0].num("extrapolated"):
        name = "red: reaches angles never trained"
        yield _label(RIGHT, top - 16, name, "extrapolated", anchor="end")
    elif len(heads) == 1 and (count := heads[0].num("no rotation")):
        yield _label(RIGHT, top - 16, f"no rotation: {count} pairs", anchor="end")


def _rotated(head: Head) -> list[Pair]:
    return [pair for pair in head.pairs if pair.state != "no rotation"]


def _margins(found: Inspection) -> Iterator[str]:
    longest = 2 * found.lengths.request
    base = _least(found.geometry.inv_freq(), longest)
    tables = [] if found.changes_attention_alone else list(np.atleast_2d(found.table.inv_freq))
    curves = [_least(row, longest) for row in tables]
    lowest = min(float(values.min()) for _, values in [base, *curves])
    top, bottom = LOWER
    y = Scale(min(lowest, 0), len(found.base.pairs), bottom - 4, top)
    x = Scale(1, longest, LEFT, RIGHT, logarithmic=True)
    name = "B_m by distance in tokens (least value of each step)"
    if len(curves) > 1:
        name = "B_m by distance in tokens (least value of each step; line: the least of all heads)"
    yield _label(LEFT, top - 16, name, "panel")
    step = 10 ** math.ceil(math.log10(len(found.base.pairs) / 8))
    for value in range(-step * int(-min(lowest, 0) // step), len(found.base.pairs) + 1, step):
        yield from _line_across(y(value), str(value), "grid" if value else "zero")
    for power in range(int(math.log10(longest)) + 1):
        yield _label(x(10**power), bottom + 20, f"{10**power:,}", anchor="middle")
    yield _upright(x(found.lengths.request), "request", "mark", 0)
    bounds = [(found.base.bound, "base L_theta", "mark")]
    if len(tables) == 1 and found.changes_frequencies:
        bounds.append((found.heads[0].bound, "L_theta", "limit"))
    for row, (bound, label, kind) in enumerate(bounds, start=1):
        if bound is not None and 1 <= bound <= longest:
            yield _upright(x(bound), label, kind, row)
    yield _curve([(x(m), y(value)) for m, value in zip(*base, strict=True)], "base")
    if curves:
        # The curves of many heads oscillate and would hide each other. Draw their minimum as a
        # line, and the range from minimum to maximum as a band.
        distances, values = curves[0][0], np.stack([values for _, values in curves])
        low, high = (
            [(x(m), y(value)) for m, value in zip(distances, ends, strict=True)]
            for ends in (values.min(axis=0), values.max(axis=0))
        )
        if len(curves) > 1:
            yield _curve([*low, *reversed(high)], "band")
        yield _curve(low, "method")


def _least(inv_freq: Frequencies, longest: int) -> tuple[Frequencies, Frequencies]:
    """Return the first distance of ranges that are equal on a log scale, and their smallest B_m."""
    edges = np.unique(np.geomspace(1, longest + 1, STEPS).astype(np.int64))
    sums = np.concatenate([run for _, run in discrimination_runs(inv_freq, longest)])
    return edges[:-1].astype(np.float64), np.minimum.reduceat(sums, edges[:-1])


def _named_lines(lines: list[tuple[float, str, str]]) -> Iterator[str]:
    """Yield horizontal lines with names at their right ends, at least 15 px apart."""
    place = math.inf
    for height, name, kind in sorted(lines, reverse=True):
        yield f'<path class="{kind}" d="M{LEFT} {height:.1f}H{RIGHT}"/>'
        place = min(height + 4, place - 15)
        yield _label(RIGHT + 6, place, name, "limit-name" if kind == "limit" else "")


def _line_across(height: float, name: str, kind: str) -> Iterator[str]:
    yield f'<path class="{kind}" d="M{LEFT} {height:.1f}H{RIGHT}"/>'
    yield _label(LEFT - 8, height + 4, name, anchor="end")


def _upright(x: float, name: str, kind: str, row: int) -> str:
    top, bottom = LOWER
    label = _label(x + 4, top + 12 + 16 * row, name, "limit-name" if kind == "limit" else "")
    return f'<path class="{kind}" d="M{x:.1f} {top}V{bottom}"/>{label}'


def _curve(points: Sequence[tuple[float, float]], kind: str) -> str:
    return f'<path class="{kind}" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in points)}"/>'


def _label(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
