"""Scores that differ significantly from the base model's have a mark in all report formats.

One task is better, one worse and one the same.
"""

import re
from pathlib import Path

import duckdb
import pytest

from dashboards.contents import read_contents
from dashboards.families import LEGEND, MARKS
from dashboards.latex import write_latex
from dashboards.markdown import write_markdown
from dashboards.sections import tasks
from tests.support.catalogs.answered_catalog import BASE_MODEL, Answered, written

RIGHT = {
    ("none", True): {"vt": 0.5, "qa_1": 0.5, "cwe": 0.5, "passkey": 0.0},
    ("pi", False): {"vt": 1.0, "qa_1": 0.5, "cwe": 0.0, "passkey": 1.0},
}
"""Share of correct answers, by method and task."""
EXPECTED = {"vt": "better", "cwe": "worse", "passkey": "better"}


def studied(path: Path, prompts: int) -> Path:
    return written(
        path,
        [
            Answered(
                method, frozen, 0, "passkey" if task == "passkey" else "ruler", task, 512,
                [float(number < share * prompts) for number in range(prompts)], share,
            )
            for (method, frozen), shares in RIGHT.items()
            for task, share in shares.items()
        ],
    )  # fmt: skip


@pytest.fixture(scope="module")
def catalog(tmp_path_factory) -> Path:
    path = studied(tmp_path_factory.mktemp("marks") / "catalog.duckdb", 60)
    with duckdb.connect(path) as connection:  # 0.05 itself is significant
        connection.execute(
            "UPDATE compared.paired_difference SET p_adjusted = greatest(p_adjusted, 0.05)"
        )
    return path


def html(catalog: Path) -> str:
    return tasks.by_task(read_contents(catalog, "s").of(BASE_MODEL))


def test_a_task_has_its_mark_in_the_reports_table(catalog):
    shown = html(catalog)
    found = {}
    for method, body in re.findall(r'<tr data-method="(\w+)"[^>]*>(.*?)</tr>', shown):
        for task, text in re.findall(r'<td[^>]*data-task="(\w+)"[^>]*>(.*?)</td>', body):
            for verdict, mark in MARKS.items():
                if mark in text:
                    found[method, task] = verdict
                    assert f'aria-label="{verdict} than the base model"' in text
    assert found == {("pi", task): verdict for task, verdict in EXPECTED.items()}
    assert shown.startswith(f"<p>{LEGEND} ")


def test_a_task_has_the_same_mark_in_markdown(catalog, tmp_path):
    page = write_markdown(catalog, "s", tmp_path / "report").read_text("utf-8")
    assert page.count(LEGEND) == 1
    for task in RIGHT["none", True]:
        (block,) = re.findall(
            rf"^### \w+, {task}:.*?(?=^#|\Z)", page, flags=re.DOTALL | re.MULTILINE
        )
        (line,) = re.findall(r"^\| pi tuned .*$", block, flags=re.MULTILINE)
        marks = [verdict for verdict, mark in MARKS.items() if mark in line]
        assert marks == ([EXPECTED[task]] if task in EXPECTED else [])
        assert not any(mark in block.replace(line, "") for mark in MARKS.values())


def test_the_mean_of_a_benchmark_has_its_own_mark_in_latex(catalog, tmp_path):
    text = write_latex(catalog, "s", tmp_path / "tables.tex").read_text("utf-8")
    ruler, passkey = text.split(r"\begin{table}")[1:]
    if "passkey" in ruler.split("\n")[2]:
        ruler, passkey = passkey, ruler
    # One of RULER's three tasks is better and one equally worse, so their mean is not significant.
    assert "$^{" not in ruler
    (line,) = (one for one in passkey.splitlines() if "pi tuned" in one)
    assert line.strip().endswith("$^{+}$ \\\\")
    assert "$^{+}$ better" in passkey


def test_without_a_significant_difference_there_is_neither_mark_nor_legend(tmp_path):
    few = studied(tmp_path / "catalog.duckdb", 2)
    page = write_markdown(few, "s", tmp_path / "report").read_text("utf-8")
    text = write_latex(few, "s", tmp_path / "tables.tex").read_text("utf-8")
    for shown in (html(few), page):
        assert not any(mark in shown for mark in MARKS.values())
    assert "$^{" not in text


def test_the_mean_at_a_length_that_has_one_task_has_the_mark_of_this_task(tmp_path):
    cells = [
        Answered(
            method, frozen, 0, "ruler", task, length,
            [float(number < RIGHT[method, frozen][task] * 60) for number in range(60)],
            RIGHT[method, frozen][task],
        )
        for method, frozen in RIGHT
        for task, length in (("vt", 256), ("vt", 512), ("cwe", 512))
    ]  # fmt: skip
    catalog = written(tmp_path / "catalog.duckdb", cells)
    text = write_latex(catalog, "s", tmp_path / "tables.tex").read_text("utf-8")
    (line,) = (one for one in text.splitlines() if "pi tuned" in one)
    _, short, long = line.removesuffix(r"\\").split(" & ")
    assert short.endswith("$^{+}$")
    assert "$^{" not in long  # one task is better and one equally worse
