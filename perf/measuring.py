"""The harness of the speed scripts: options, timing, and tables of figures with limits.

docs/performance.md has the command of each figure, and `--help` lists the options of a script.
Ratios are medians of calls that `compare` times one right after the other in alternating order. CPU
seconds are more stable than wall seconds on a machine with other load.

It imports torch and lce where it needs them, because perf/gpu.py starts without them.
"""

import json
import os
import re
import statistics
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

Row = Mapping[str, Any]
"""Figures of one row of a table, by the titles of their columns."""
PAGE = Path(__file__).resolve().parents[1] / "docs" / "gpus.md"

# Options and tables


def parser(description: str | None, **defaults: Any) -> ArgumentParser:
    """Return a parser with an option of its type for each default.

    An option takes several values if its default is a tuple, and is a switch if that is False.
    """
    made = ArgumentParser(description=(description or "").partition("\n")[0])
    for name, default in defaults.items():
        kind: dict[str, Any] = {"type": type(default)}
        if default is False:
            kind = {"action": "store_true"}
        elif isinstance(default, tuple):
            kind = {"type": type(default[0]) if default else str, "nargs": "+"}
        option = f"--{name.replace('_', '-')}"
        made.add_argument(option, default=default, help=f"default: {default}", **kind)
    return made


def measure(
    description: str | None,
    rows: Callable[[Namespace], Iterable[Row]],
    arguments: list[str] | None = None,
    **defaults: Any,
) -> None:
    """Print the figures of a script, each row as soon as it is measured, and where they are from.

    `rows` receives the options of the command, which have the `defaults`, and a temporary `folder`.
    A row with other columns than the row before starts a new table. The option `threads` sets
    torch's threads.
    """
    from lce_core.store.records import environment

    made = parser(description, **defaults)
    made.add_argument("--out", type=Path, help="also write the figures as JSON")
    options = made.parse_args(arguments)
    if "threads" in options:
        import torch

        torch.set_num_threads(options.threads)
    chosen = {name: getattr(options, name) for name in defaults}
    found: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="lce-perf-") as folder:
        options.folder = Path(folder)
        for row in rows(options):
            if not found or row.keys() != found[-1].keys():
                print("\n" * bool(found) + _head(row))
            print(_line(row), flush=True)
            found.append(row)
    where = environment()
    machine = {name: where[name] for name in ("cpu", "cpu_count", "accelerators", "git")}
    machine["load"] = os.getloadavg()[0]
    print(f"\n{chosen}\n{machine}")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        whole = {"options": chosen, "rows": found, "environment": where}
        options.out.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def at_most(value: float, limit: float | None) -> object:
    """Return a limit as a table shows it: bold if `value` misses it."""
    return limit if limit is None or value <= limit else f"**{limit:g}**"


def at_least(value: float, limit: float | None) -> object:
    return limit if limit is None or value >= limit else f"**{limit:g}**"


def markdown(rows: Iterable[Row]) -> str:
    """Return a table whose columns are those of its first row."""
    rows = list(rows)
    return "\n".join([_head(rows[0]), *map(_line, rows)])


def _head(row: Row) -> str:
    numeric = [re.fullmatch(r"[-\d,.*e+]+( %)?", _shown(value)) for value in row.values()]
    return f"| {' | '.join(row)} |\n|{'|'.join('--:' if one else '---' for one in numeric)}|"


def _line(row: Row) -> str:
    return f"| {' | '.join(map(_shown, row.values()))} |"


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "-" if value is None else f"{value:,}" if type(value) is int else str(value)


def alike(names: Iterable[str], figures: Callable[[str], Row]) -> list[Row]:
    """Return the rows of methods; methods with equal figures share a row."""
    rows: dict[tuple[tuple[str, Any], ...], list[str]] = {}
    for name in names:
        rows.setdefault(tuple(figures(name).items()), []).append(name)
    return [{"methods": ", ".join(methods), **dict(row)} for row, methods in rows.items()]


def page_tables(description: str | None, tables: Mapping[str, Callable[[], str]]) -> None:
    """Print tables of docs/gpus.md; with `--write` on the command line, replace them there.

    On the page, a table stands between comments with its name.
    """
    write = parser(description, write=False).parse_args().write
    for name, make in tables.items():
        print(found := make())
        if write:
            ends = f"(?<=<!-- {name}: start -->)|(?=<!-- {name}: end -->)"
            before, _, after = re.split(ends, PAGE.read_text(encoding="utf-8"))
            PAGE.write_text(f"{before}\n{found}\n{after}", encoding="utf-8")


# Time and training rows


class Timed(NamedTuple):
    """Wall and CPU seconds of a call, with its result."""

    wall: float
    cpu: float
    result: Any


def timed(call: Callable[[], Any]) -> Timed:
    """Time one call, including the work that it leaves on the GPU."""
    _synchronise()
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()
    _synchronise()
    return Timed(time.perf_counter() - wall, time.process_time() - cpu, result)


class Compared(NamedTuple):
    """Medians of first time / second time, and the calls of both."""

    wall: float
    cpu: float
    first: list[Timed]
    second: list[Timed]


def compare(first: Callable[[], object], second: Callable[[], object], repeats: int) -> Compared:
    """Time two calls one right after the other, `repeats` times in alternating order."""
    calls: tuple[list[Timed], list[Timed]] = [], []
    for repeat in range(repeats):
        turns = list(zip((first, second), calls, strict=True))
        for call, found in turns[:: -1 if repeat % 2 else 1]:
            found.append(timed(call))
    pairs = list(zip(*calls, strict=True))
    wall = statistics.median(one.wall / other.wall for one, other in pairs)
    return Compared(wall, statistics.median(one.cpu / other.cpu for one, other in pairs), *calls)


def _synchronise() -> None:
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_available():
        torch.cuda.synchronize()


def random_rows(folder: Path, number: int, length: int, vocabulary: int) -> None:
    """Write rows of random tokens in the format of `lce_core.data.packing`."""
    import numpy as np

    from lce_core.data.tokenised import MANIFEST
    from lce_core.store.records import write_json

    drawn = np.random.default_rng(0).integers(vocabulary, size=(number, length), dtype=np.uint16)
    (folder / "rows.bin").write_bytes(drawn.tobytes())
    manifest = {"num_rows": number, "row_length": length, "dtype": "uint16", "weighted": False}
    write_json(folder / MANIFEST, manifest)
