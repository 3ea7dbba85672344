"""A mean is a number only where all of its planned parts are done, and only such are ranked.

Strategy: random studies with random holes; means, ranks and reasons are computed again in plain
Python. Scores are multiples of 1/64, so that sums and ties are exact.
"""

import itertools
import re
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from catalog.queries import run_query
from dashboards.contents import read_contents
from dashboards.report import render
from tests.support.catalogs.holed_catalog import HOLES, LOWER_IS_BETTER, TARGET, Cell, written

LONGEST = 1024
TASKS = {"perplexity": ["books", "code"], "needle": ["needle"], "ruler": ["fwe", "qa_1", "vt"]}
METHODS = [("none", True), ("pi", True), ("pi", False), ("yarn", False)]


def studies() -> st.SearchStrategy[list[list[Cell]]]:
    return st.lists(study(), min_size=1, max_size=6)


@st.composite
def study(draw: st.DrawFn) -> list[Cell]:
    """Cells in the order of a plan; a few are not even planned."""
    methods = draw(st.integers(2, len(METHODS)))
    lengths = draw(st.sampled_from([[TARGET], [TARGET, LONGEST]]))
    benchmarks = draw(st.sets(st.sampled_from(sorted(TASKS)), min_size=1))
    seeds = draw(st.integers(1, 3))
    # A study is whole, has single holes, or is mostly holes.
    done = draw(st.sampled_from([1, 20, 4, 0]))
    kinds = ["done"] * done + (["failed", "missing", "unavailable", "absent"] if done != 1 else [])
    cells = []
    for seed, (method, frozen) in itertools.product(range(seeds), METHODS[:methods]):
        for benchmark in sorted(benchmarks):
            for task, length in itertools.product(TASKS[benchmark], lengths):
                status = draw(st.sampled_from(kinds))
                value = draw(st.integers(0, 4)) / 64
                if status != "absent":
                    cells.append(Cell(method, frozen, seed, benchmark, task, length, status, value))
    return cells


@dataclass(frozen=True)
class Mean:
    """What a mean over some cells must be."""

    cells: list[Cell]

    @property
    def done(self) -> list[Fraction]:
        return [Fraction(cell.value) for cell in self.cells if cell.status == "done"]

    @property
    def of_done(self) -> float | None:
        return float(sum(self.done) / len(self.done)) if self.done else None

    @property
    def value(self) -> float | None:
        return self.of_done if len(self.done) == len(self.cells) else None

    @property
    def parts(self) -> frozenset[tuple[str, int]]:
        return frozenset((cell.task, cell.seed) for cell in self.cells)

    @property
    def gaps(self) -> set[tuple[str, str, int]]:
        """Status, task and seed of what is not done."""
        return {(c.status, c.task, c.seed) for c in self.cells if c.status != "done"}


Key = tuple[Any, ...]


def by(cells: Iterable[Cell], *names: str) -> dict[Key, Mean]:
    grouped: dict[Key, list[Cell]] = {}
    for cell in cells:
        grouped.setdefault(tuple(getattr(cell, name) for name in names), []).append(cell)
    return {key: Mean(group) for key, group in grouped.items()}


def rank(mean: Mean, column: list[Mean]) -> int | None:
    """Place among those of a column that have a value and the same parts."""
    if mean.value is None:
        return None
    others = [other.value for other in column if other.parts == mean.parts]
    sign = 1 if mean.cells[0].benchmark in LOWER_IS_BETTER else -1
    return 1 + sum(sign * v < sign * mean.value for v in others if v is not None)


def is_best(mean: Mean, column: list[Mean]) -> bool:
    """Whether it may be marked in a column, which shows all values side by side."""
    known = [other for other in column if other.value is not None]
    comparable = len({other.parts for other in known}) == 1
    return rank(mean, column) == 1 and len(known) > 1 and comparable


def usual_parts(column: list[Mean]) -> frozenset[tuple[str, int]]:
    """What most means of a column are over; of two as frequent, the first planned."""
    counted = Counter(mean.parts for mean in column)
    return max(counted, key=lambda parts: counted[parts])


def told(missing: str | None, task: str | None = None) -> set[tuple[str, str, int]]:
    """Status, task and seed of each part that a text names; a task's own text names no task."""
    found = set()
    for part in (missing or "").split("; ") if missing else ():
        match = re.fullmatch(r"(\w+): (.*) \((.*)\)", part)
        assert match, part
        status, cells, reason = match.groups()
        assert reason == HOLES[status]
        for cell in cells.split(", "):
            named, _, seeds = re.sub("seeds? ", "|", cell).partition("|")
            found |= {(status, task or named.strip(), int(seed)) for seed in seeds.split()}
    return found


def rows(catalog: Path, sql: str, keys: int) -> dict[Key, tuple[Any, ...]]:
    _, found = run_query(catalog, sql)
    keyed = {row[:keys]: row[keys:] for row in found}
    assert len(keyed) == len(found)
    return keyed


def check_benchmarks(catalog: Path, drawn: list[list[Cell]]) -> None:
    shown = rows(
        catalog,
        "SELECT study, method, frozen, benchmark, eval_length, value, value_of_done, missing,"
        " num_done, num_planned, rank, is_best, task_set,"
        " has_usual_tasks FROM benchmark_by_length",
        5,
    )
    sets: dict[Any, Any] = {}
    expected = {}
    for number, cells in enumerate(drawn):
        means = by(cells, "method", "frozen", "benchmark", "eval_length")
        for key, mean in means.items():
            column = [other for at, other in means.items() if at[2:] == key[2:]]
            expected[f"study-{number}", *key] = (mean, column)
    assert shown.keys() == expected.keys()
    for key, (mean, column) in expected.items():
        value, of_done, missing, num_done, num_planned, place, best, task_set, usual = shown[key]
        assert (value, of_done) == (mean.value, mean.of_done)
        assert (num_done, num_planned) == (len(mean.done), len(mean.cells))
        assert told(missing) == mean.gaps
        assert (place, best) == (rank(mean, column), is_best(mean, column))
        assert usual == (mean.parts == usual_parts(column))
        # One id for each set of parts, and one set for each id.
        assert sets.setdefault(task_set, (key[3], mean.parts)) == (key[3], mean.parts)
    assert len(set(sets.values())) == len(sets)


def check_tasks(catalog: Path, drawn: list[list[Cell]]) -> None:
    names = "study, method, frozen, benchmark, task, eval_length"
    shown = rows(
        catalog,
        f"SELECT {names}, value, lowest, highest, value_of_done, missing, num_seeds, num_planned,"
        " rank FROM score_by_length",
        6,
    )
    curves = rows(
        catalog,
        f"SELECT {names}, nll, lowest, highest, value_of_done, missing, num_seeds, num_planned,"
        " task_set FROM nll_by_position WHERE position_bin = 0",
        6,
    )
    expected = {}
    for number, cells in enumerate(drawn):
        means = by(cells, "method", "frozen", "benchmark", "task", "eval_length")
        for key, mean in means.items():
            column = [other for at, other in means.items() if at[2:] == key[2:]]
            expected[f"study-{number}", *key] = (mean, column)
    assert shown.keys() == expected.keys()
    assert curves.keys() == {key for key, (mean, _) in expected.items() if mean.done}
    for key, (mean, column) in expected.items():
        value, lowest, highest, of_done, missing, num_seeds, num_planned, place = shown[key]
        ends = (min(mean.done), max(mean.done)) if mean.value is not None else (None, None)
        assert (value, lowest, highest, of_done) == (mean.value, *ends, mean.of_done)
        assert told(missing, key[4]) == mean.gaps
        assert (num_seeds, num_planned) == (len(mean.done), len(mean.cells))
        assert place == rank(mean, column)
        if mean.done:
            assert curves[key][:7] == shown[key][:7]


def check_overview(catalog: Path, drawn: list[list[Cell]]) -> None:
    columns, found = run_query(catalog, "FROM overview")
    shown = [dict(zip(columns, row, strict=True)) for row in found]
    for number, cells in enumerate(drawn):
        longest = max((c.eval_length for c in cells), default=None)
        methods = by(cells, "method", "frozen")
        of_study = [row for row in shown if row["study"] == f"study-{number}"]
        assert [(row["method"], row["frozen"]) for row in of_study] == [*methods]
        for row, whole in zip(of_study, methods.values(), strict=True):
            means = by(whole.cells, "benchmark", "eval_length")
            named = {b: m for (b, length), m in means.items() if length == TARGET} | {
                f"{b}_longest": m for (b, length), m in means.items() if length == longest
            }
            for benchmark in TASKS:
                for name in (benchmark, f"{benchmark}_longest"):
                    if name in columns:
                        assert row[name] == (named[name].value if name in named else None), name
            partial = {n: m.of_done for n, m in named.items() if m.done and m.value is None}
            assert (row["value_of_done"] or {}) == partial
            holes = {
                (c.status, c.benchmark, c.task, c.eval_length, c.seed)
                for mean in named.values()
                for c in mean.cells
                if c.status != "done"
            }
            assert told_in_the_overview(row["missing"]) == holes
            counts = [cell.status for cell in whole.cells]
            assert row["num_missing"] == counts.count("failed") + counts.count("missing")
            assert row["num_unavailable"] == counts.count("unavailable")
            assert (row["task_set"] or {}).keys() == named.keys()


def told_in_the_overview(missing: str | None) -> set[tuple[str, str, str, int, int]]:
    found = set()
    for part in missing.split("; ") if missing else ():
        status, cells, reason = re.fullmatch(r"(\w+): (.*) \((.*)\)", part).groups()  # type: ignore[union-attr]
        assert reason == HOLES[status]
        for cell in cells.split(", "):
            match = re.fullmatch(r"(\w+)(?:/(\w+))? at ([\d ]+) seeds? ([\d ]+)", cell)
            assert match, cell
            benchmark, task, lengths, seeds = match.groups()
            found |= {
                (status, benchmark, task or benchmark, int(length), int(seed))
                for length in lengths.split()
                for seed in seeds.split()
            }
    return found


def check_report(catalog: Path, cells: list[Cell]) -> None:
    """Values and frames of the heat maps of study-0."""
    page = render(read_contents(catalog, "study-0"))
    form = (
        r'<g class="field (?:h\d+|absent)( best)?" data-method="(\w+)" data-frozen="(\w+)"'
        r' data-block="(.*?)" data-x="(\d+)"(?: data-value="(.*?)")?'
    )
    means = by(cells, "method", "frozen", "benchmark", "eval_length")
    tasks = by(cells, "method", "frozen", "benchmark", "task", "eval_length")
    fields = re.findall(form, page)
    assert fields or not any(c.status == "done" and c.benchmark == "perplexity" for c in cells)
    for best, method, frozen, block, length, value in fields:
        benchmark, _, task = block.replace(" ", "_").partition(":_")
        of_method = (method, frozen == "true", benchmark)
        shown = float(value) if value else None
        if task:
            assert shown == tasks[(*of_method, task, int(length))].value
            continue
        mean = means[(*of_method, int(length))]
        column = [other for at, other in means.items() if at[2:] == (benchmark, int(length))]
        framed = is_best(mean, column) and sum(is_best(one, column) for one in column) <= 3
        assert (shown, bool(best)) == (mean.value, framed)


NO_METHOD_IS_WHOLE = [
    Cell(method, True, 0, "perplexity", task, TARGET, status, 1 / 64)
    for method in ("none", "pi")
    for task, status in (("books", "done"), ("code", "failed"))
]


WITHOUT_THE_HARDEST_TASK = [
    Cell(method, True, 0, "ruler", task, TARGET, status if task == "vt" else "done", value)
    for method, status in zip(("none", "pi", "yarn", "clex"), ("done", *HOLES), strict=True)
    for task, value in (("fwe", 1.0), ("vt", 0.25))
]


def whole(method: str, tasks: str, seeds: int, value: float) -> list[Cell]:
    axes = itertools.product(tasks.split(), range(seeds))
    return [Cell(method, True, s, "ruler", t, TARGET, "done", value) for t, s in axes]


COMPARABLE = [*whole("none", "fwe vt", 2, 0.25), *whole("pi", "fwe vt", 2, 0.5)]
FEWER_SEEDS = [*COMPARABLE, *whole("yarn", "fwe vt", 1, 0.75)]
OTHER_TASKS = [*COMPARABLE, *whole("clex", "fwe qa_1", 2, 1.0)]


# An example builds a catalog of up to six studies and renders a page.
@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
@example([NO_METHOD_IS_WHOLE])
@example([FEWER_SEEDS, WITHOUT_THE_HARDEST_TASK])
@example([OTHER_TASKS, COMPARABLE, COMPARABLE[::-1]])
@given(studies())
def test_means_of_studies_with_random_holes(drawn):
    with tempfile.TemporaryDirectory() as folder:
        catalog = written(Path(folder), drawn)
        check_benchmarks(catalog, drawn)
        check_tasks(catalog, drawn)
        check_overview(catalog, drawn)
        if drawn[0]:
            check_report(catalog, drawn[0])


def test_the_report_says_what_is_missing_and_the_mean_of_what_is_done(tmp_path):
    catalog = written(tmp_path, [WITHOUT_THE_HARDEST_TASK])
    page = render(read_contents(catalog, "study-0"))
    told = re.findall(r'class="field absent"[^>]*data-tooltip="(.*?)"', page)
    assert told == [
        f"{method}, ruler at 512: {status}: vt seed 0 ({reason});"
        " mean over the finished cells: 1.000"
        for method, (status, reason) in zip(("pi", "yarn", "clex"), HOLES.items(), strict=True)
    ]


def test_a_task_set_names_benchmark_task_profile_and_seed(tmp_path):
    clean = [replace(cell, profile="clean") for cell in COMPARABLE]
    _, sets = run_query(
        written(tmp_path, [COMPARABLE[::2], clean]),
        "SELECT DISTINCT parts FROM benchmark_by_length JOIN task_sets USING (task_set, benchmark)"
        " ORDER BY parts",
    )
    assert sets == [
        ("ruler/fwe/clean/0 ruler/fwe/clean/1 ruler/vt/clean/0 ruler/vt/clean/1",),
        ("ruler/fwe/tiny/0 ruler/vt/tiny/0",),
    ]
