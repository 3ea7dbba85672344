"""LaTeX tables contain the means of the catalog, and foreign text cannot break them."""

import re
from pathlib import Path

import pytest

from catalog.queries import run_query
from dashboards.latex import write_latex
from lce_core import formats
from tests.support.catalogs.holed_catalog import TARGET, Cell, written


@pytest.fixture(scope="module")
def latex(tmp_path_factory) -> tuple[Path, str]:
    """The catalog and its tables."""
    folder = tmp_path_factory.mktemp("latex")
    values = {("none", True): 9.0, ("pi", False): 5.5, ("own_100%", True): 7.0}
    cells = [
        Cell(method, frozen, 0, "perplexity", "code", length, "done", value + length / 1024)
        for (method, frozen), value in values.items()
        for length in (128, TARGET)
    ]
    cells.append(Cell("yarn", True, 0, "perplexity", "code", 128, "done", 6.0))
    cells.append(Cell("yarn", True, 0, "perplexity", "code", TARGET, "failed"))
    catalog = written(folder, [cells])
    return catalog, write_latex(catalog, "study-0", folder / "new" / "tables.tex").read_text(
        "utf-8"
    )


def test_every_mean_is_in_its_row_and_column(latex):
    catalog, text = latex
    shown = {}
    for line in text.splitlines():
        if line.endswith("\\\\") and "method &" not in line:
            name, *cells = line.strip().removesuffix(" \\\\").split(" & ")
            shown[name] = [re.sub(r"\\textbf{(.*)}", r"\1", cell) for cell in cells]
    _, rows = run_query(catalog, "SELECT method, frozen, eval_length, value FROM score_by_length")
    for method, frozen, length, value in rows:
        name = method.replace("_", "\\_").replace("%", "\\%") + ("" if frozen else " tuned")
        column = [128, TARGET].index(length)
        assert shown[name][column] == ("--" if value is None else formats.score(value))
    assert len(shown) == 4


def test_the_best_of_a_column_is_bold(latex):
    _, text = latex
    (row,) = (line for line in text.splitlines() if "textbf" in line)
    assert row.strip().startswith("pi tuned & \\textbf{5.625}")
    assert row.count("textbf") == 2
