"""Combine charts into one SVG file, for papers and for pages without scripts."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

GAP = 24.0
"""Free space in pixels between charts and around them."""
_STYLE = Path(__file__).parent / "page" / "figures.css"
_SIZE = re.compile(r'^<svg [^>]*? width="([\d.]+)" height="([\d.]+)"')


def picture(charts: Sequence[str]) -> str:
    """Return one SVG document with all charts in a grid.

    The SVG buttons of the HTML report save charts in the same form.

    Args:
      charts: `<svg>` elements of `dashboards.charts`; at least one.
    """
    sizes = [(float(found[1]), float(found[2])) for found in map(_SIZE.match, charts) if found]
    wide, high = (max(side) for side in zip(*sizes, strict=True))
    columns = math.ceil(math.sqrt(len(charts)))
    width = GAP + columns * (wide + GAP)
    height = GAP + math.ceil(len(charts) / columns) * (high + GAP)
    placed = "\n".join(
        f'<svg x="{GAP + number % columns * (wide + GAP):g}"'
        f' y="{GAP + number // columns * (high + GAP):g}"{chart.removeprefix("<svg")}'
        for number, chart in enumerate(charts)
    )
    # Always light: pages without scripts may be light while the reader's system is dark.
    style = re.sub(r"@media screen.*?\n}\n", "", _STYLE.read_text(encoding="utf-8"), flags=re.S)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
        f' width="{width:g}" height="{height:g}">\n<style>\n{style}</style>\n'
        f'<rect width="100%" height="100%" style="fill: var(--page)"/>\n{placed}\n</svg>\n'
    )
