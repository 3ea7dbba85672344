"""Check and draw the imports between packages, and between the modules of `lce_core`.

    python docs/imports.py                          # only check
    python docs/imports.py --svg docs/imports.svg   # check, and draw the picture of the docs

Layers are those of the import contracts in pyproject.toml. Arrows are imports in the source,
including imports for type checkers. The exit code is 1 if an arrow does not point down or files
import each other in a circle; the output names them. The picture omits an arrow if a path of other
arrows connects the same boxes; an arrow that does not point down is red.
"""

from __future__ import annotations

import argparse
import ast
import graphlib
import itertools
import math
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
CORE = "lce_core"
Arrow = tuple[str, str]
"""The importing and the imported package or module."""

WIDTH, MARGIN = 1440, 30
BOX, DUMMY, GAP = (196.0, 58.0), 16.0, 16.0
PITCH = 106
STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #57606a }
  .name { font-weight: 600; font-size: 15px; fill: #1f2328 }
  .files { font-size: 11px; fill: #8c959f }
  .duty { font-size: 11.5px }
  .box { fill: #fff; stroke: #6e7bb8; stroke-width: 1.3 }
  .house { fill: #f4f6fc; stroke: #c3cae6 }
  .arrow { fill: none; stroke: #8792b8; stroke-width: 1.4; marker-end: url(#tip) }
  .wrong { fill: none; stroke: #cf222e; stroke-width: 2.2; marker-end: url(#wrong-tip) }
"""


@dataclass(frozen=True)
class Diagram:
    """Packages or modules by layer, from the top down, and all imports between them."""

    layers: list[list[str]]
    arrows: set[Arrow]

    def wrong(self) -> list[Arrow]:
        """Return the arrows that do not point down."""
        level = {name: number for number, layer in enumerate(self.layers) for name in layer}
        return sorted((a, b) for a, b in self.arrows if level[a] >= level[b])

    def shown(self) -> list[Arrow]:
        """Return the drawn arrows: those that point down and that no path of others implies."""
        down = self.arrows - set(self.wrong())
        return sorted(arrow for arrow in down if not _reaches(down - {arrow}, *arrow))


def imports_of_files(packages: Sequence[str]) -> dict[str, set[str]]:
    """Return, for each module of `packages`, the modules of `packages` that it imports."""
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for package in packages
        for path in sorted((ROOT / package).rglob("*.py"))
    }
    return {name: set(_imported(path, files)) - {name} for name, path in files.items()}


def read_diagrams() -> tuple[Diagram, Diagram, dict[str, set[str]]]:
    """Return the layers of packages, the layers of `lce_core`, and the imports of each file."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    contracts = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    layers = [contract for contract in contracts if contract["type"] == "layers"]
    packages, modules = (
        next(
            [re.split(r"\s*\|\s*", layer) for layer in contract["layers"]]
            for contract in layers
            if contract.get("containers") == containers
        )
        for containers in (None, [CORE])
    )
    files = imports_of_files([name for layer in packages for name in layer])
    outer = Diagram(packages, _arrows(files, lambda name: name.partition(".")[0]))
    core = {
        name: {other for other in imported if other.startswith(CORE + ".")}
        for name, imported in files.items()
        if name.startswith(CORE + ".")
    }
    return outer, Diagram(modules, _arrows(core, lambda name: name.split(".")[1])), files


def circle(files: Mapping[str, set[str]]) -> list[str]:
    """Return modules that import each other in a circle, first one repeated last; [] if none."""
    try:
        graphlib.TopologicalSorter(files).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def draw(outer: Diagram, modules: Diagram) -> str:
    top = 52
    house = top + (len(outer.layers) - 1) * PITCH
    height = house + 92 + len(modules.layers) * PITCH - int(PITCH - BOX[1]) + MARGIN
    wide = (WIDTH - 2 * MARGIN, BOX[1])
    hidden = len(modules.arrows) - len(modules.shown()) - len(modules.wrong())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height + MARGIN}"'
        f' role="img" aria-label="Import structure: all arrows point down">',
        f"<style>{STYLE}</style>",
        f"<defs>{_tip('tip', '#8792b8')}{_tip('wrong-tip', '#cf222e')}</defs>",
        f'<rect width="{WIDTH}" height="{height + MARGIN}" rx="10" fill="#fff"/>',
        f'<text x="{MARGIN}" y="30">An arrow points from the importing to the imported package or'
        f" module. {hidden} arrows are left out, because paths of other arrows imply them.</text>",
        f'<rect class="house" x="{MARGIN}" y="{house}" width="{wide[0]}"'
        f' height="{height - house}" rx="10"/>',
        *_boxes_and_arrows(outer, top, {CORE: wide}),
        *_boxes_and_arrows(modules, house + 92, {}),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _boxes_and_arrows(
    diagram: Diagram, top: int, sizes: Mapping[str, tuple[float, float]]
) -> Iterator[str]:
    """Yield SVG boxes and arrows; the top layer starts at y = `top`."""
    centres, chains = _layout(diagram, sizes)
    level = {name: number for number, layer in enumerate(diagram.layers) for name in layer}
    for (first, last), chain in chains.items():
        points = [(centres[node], top + PITCH * (level[first] + i)) for i, node in enumerate(chain)]
        yield f'<path class="arrow" d="{_curve(points)}"><title>{first} to {last}</title></path>'
    for first, last in diagram.wrong():
        x, y, above = centres[first], top + PITCH * level[first], top + PITCH * level[last]
        yield f'<path class="wrong" d="M{x:.0f} {y}L{centres[last]:.0f} {above + BOX[1]:.0f}"/>'
    for name, number in level.items():
        yield from _box(name, centres[name], top + PITCH * number, sizes.get(name, BOX))


def _box(name: str, x: float, y: int, size: tuple[float, float]) -> Iterator[str]:
    folder = ROOT / name if (ROOT / name).is_dir() else ROOT / CORE / name
    source = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    count = sum(1 for _ in folder.rglob("*.py")) if folder.is_dir() else 1
    docstring = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    # Describe the box by the first sentence of its docstring, or by the first clause if the
    # sentence is too long.
    clauses = (re.split(rf"[{ends}](?:\s|$)", docstring)[0] for ends in (":;.", ":;.,"))
    lines = [textwrap.wrap(clause, 29 if size == BOX else 90) for clause in clauses]
    duty = next((some for some in lines if len(some) <= 2), lines[-1][:2])
    width, height = size
    left = x - width / 2
    files = f"{count} files" if count > 1 else "1 file"
    size_of_box = f'width="{width:.0f}" height="{height:.0f}"'
    yield f'<rect class="box" x="{left:.0f}" y="{y}" {size_of_box} rx="6"/>'
    yield f'<text class="name" x="{left + 10:.0f}" y="{y + 20}">{escape(name)}</text>'
    yield (
        f'<text class="files" x="{left + width - 10:.0f}" y="{y + 19}"'
        f' text-anchor="end">{files}</text>'
    )
    for number, line in enumerate(duty):
        below = y + 36 + 14 * number
        yield f'<text class="duty" x="{left + 10:.0f}" y="{below}">{escape(line)}</text>'


def _layout(
    diagram: Diagram, sizes: Mapping[str, tuple[float, float]]
) -> tuple[dict[str, float], dict[Arrow, list[str]]]:
    """Return the x centre of each node, and for each arrow its nodes from first to last box.

    A node is a box, or a station: a point where an arrow crosses a layer. Layout as in Sugiyama,
    Tagawa and Toda 1981: sort each layer by the mean x of connected nodes, alternately from the top
    and from the bottom.
    """
    layers = [list(layer) for layer in diagram.layers]
    level = {name: number for number, layer in enumerate(layers) for name in layer}
    chains: dict[Arrow, list[str]] = {}
    for first, last in diagram.shown():
        between = range(level[first] + 1, level[last])
        stations = [f"{first}>{last}@{number}" for number in between]
        chains[first, last] = [first, *stations, last]
        for number, node in zip(between, stations, strict=True):
            layers[number].append(node)
    joined: dict[str, set[str]] = {node: set() for layer in layers for node in layer}
    for chain in chains.values():
        for above, below in itertools.pairwise(chain):
            joined[above].add(below)
            joined[below].add(above)
    # After sorting, stations are pulled towards a straight line, and boxes towards other boxes.
    boxes = {node: [m for m in near if "@" not in m] or near for node, near in joined.items()}
    straight = {node: chain[1:-1] for chain in chains.values() for node in chain[1:-1]}
    centres = dict.fromkeys(joined, WIDTH / 2)
    for sweep in range(81):
        ordered = sweep >= 40
        nearby = {**boxes, **straight} if ordered else joined
        for layer in layers if sweep % 2 else layers[::-1]:
            wanted = {n: _mean([centres[m] for m in nearby[n]] or [centres[n]]) for n in layer}
            if not ordered:
                layer.sort(key=lambda node: (wanted[node], node))
            widths = [DUMMY if "@" in node else sizes.get(node, BOX)[0] + GAP for node in layer]
            centres.update(zip(layer, _apart([wanted[n] for n in layer], widths), strict=True))
    return centres, chains


def _apart(wanted: Sequence[float], widths: Sequence[float]) -> list[float]:
    """Return centres near `wanted`, in the same order, so that no two widths overlap."""
    offsets = [sum(widths[:i]) + widths[i] / 2 for i in range(len(widths))]
    groups: list[list[float]] = []
    for target in (want - offset for want, offset in zip(wanted, offsets, strict=True)):
        groups.append([target])
        while len(groups) > 1 and _mean(groups[-2]) > _mean(groups[-1]):
            last = groups.pop()
            groups[-1] += last
    spare = (WIDTH - sum(widths)) / 2
    low = min(MARGIN + 10.0, spare)
    high = WIDTH - sum(widths) - low
    starts = [min(max(_mean(group), low), high) for group in groups for _ in group]
    return [start + offset for start, offset in zip(starts, offsets, strict=True)]


def _curve(points: Sequence[tuple[float, int]]) -> str:
    """Return a path from the foot of the first box to the head of the last one."""
    path = f"M{points[0][0]:.0f} {points[0][1] + BOX[1]:.0f}"
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        foot, end = y0 + BOX[1], y1 - (3 if (x1, y1) == points[-1] else 0)
        middle = (foot + end) / 2
        path += f"C{x0:.0f} {middle:.0f} {x1:.0f} {middle:.0f} {x1:.0f} {end}"
        if (x1, y1) != points[-1]:
            path += f"V{y1 + BOX[1]:.0f}"
    return path


def _tip(name: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7"'
        f' markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" fill="{colour}"/>'
        "</marker>"
    )


def _imported(path: Path, files: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom) and (module := node.module or "") in files:
            dotted = (f"{module}.{alias.name}" for alias in node.names)
            yield from (name if name in files else module for name in dotted)


def _arrows(files: Mapping[str, set[str]], place: Callable[[str], str]) -> set[Arrow]:
    arrows = {(place(name), place(other)) for name, imported in files.items() for other in imported}
    return {(first, last) for first, last in arrows if first != last}


def _reaches(arrows: set[Arrow], first: str, last: str) -> bool:
    following = [b for a, b in arrows if a == first]
    return last in following or any(_reaches(arrows, node, last) for node in following)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)  # exact in any order: the values come from a set


def main() -> int:
    """Check the imports and, with --svg, draw them; return the exit code."""
    parser = argparse.ArgumentParser(description="Check and draw the imports of this repository.")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="where to write the picture")
    options = parser.parse_args()
    outer, modules, files = read_diagrams()
    if options.svg:
        options.svg.write_text(draw(outer, modules), encoding="utf-8")
    wrong, around = [*outer.wrong(), *modules.wrong()], circle(files)
    for first, last in wrong:
        print(f"{first} imports {last}, which is not below it")
    if around:
        print(f"circle: {' -> '.join(around)}")
    number = len(outer.arrows) + len(modules.arrows)
    if not wrong and not around:
        print(f"{len(files)} files, {number} arrows between packages and modules: all point down")
    return 1 if wrong or around else 0


if __name__ == "__main__":
    raise SystemExit(main())
