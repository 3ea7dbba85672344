"""The papers' figures contradict themselves where, and only where, the errata say so.

Every printed average is computed again from the parts that the paper prints, and contradictions
that follow from several figures are shown by them.
"""

import csv
import math
import shutil
from collections.abc import Callable
from statistics import fmean
from typing import Any

import duckdb

from catalog import build
from lce_core.benchmarks import BENCHMARKS
from lce_core.methods import METHODS
from lce_core.models import MODELS
from lce_core.rope.bound import count_negative, first_negative, frequencies_of

K = 1024
Row = dict[str, str]


def rows_of(name: str) -> list[Row]:
    with (build._REFERENCE / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


SCORES, SETTINGS, ERRATA = rows_of("scores"), rows_of("hyperparameters"), rows_of("errata")
LISTED = {row["id"] for row in ERRATA}


def test_the_figures_come_from_the_package_wherever_it_lies(tmp_path, monkeypatch):
    """As a pattern, `a[1]` would be the folder `a1`, whose files have no rows."""
    shutil.copytree(build._REFERENCE, tmp_path / "a[1]")
    (tmp_path / "a1").mkdir()
    for file in (tmp_path / "a[1]").glob("*.csv"):
        (tmp_path / "a1" / file.name).write_text(file.read_text(encoding="utf-8").splitlines()[0])
    monkeypatch.setattr(build, "_REFERENCE", tmp_path / "a[1]")
    (tmp_path / "catalog.duckdb").write_bytes(build._without_rows.__wrapped__())
    with duckdb.connect(tmp_path / "catalog.duckdb", read_only=True) as connection:
        counted = connection.execute("SELECT count(*) FROM papers.score").fetchone()
    assert counted == (len(SCORES),)


def found(paper: str, table: int, method: str | None = None, **columns: Any) -> list[Row]:
    """Rows of a table; columns are compared as text, numbers as numbers."""
    wanted = {"paper": paper, "place": f"Table {table}", **columns}
    if method is not None:
        wanted["method"] = method
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in wanted.items()
    }
    return [row for row in SCORES if all(row[name] == text for name, text in texts.items())]


def score(paper: str, table: int, method: str, **columns: Any) -> float:
    (row,) = found(paper, table, method, **columns)
    return float(row["value"])


def series(paper: str, table: int, method: str, **columns: Any) -> list[float]:
    """Values in the order of the table, without its dashes."""
    return [float(row["value"]) for row in found(paper, table, method, **columns) if row["value"]]


def setting(paper: str, place: str, name: str, paper_method: str, **columns: Any) -> list[float]:
    wanted = {"paper": paper, "place": place, "setting": name, "paper_method": paper_method}
    return [
        float(row["value"])
        for row in SETTINGS
        if all(row[key] == str(value) for key, value in (wanted | columns).items())
    ]


# Averages


def half_a_digit(printed: str) -> float:
    if printed.endswith("k"):
        return 500.0
    _, _, decimals = printed.rstrip("%").partition(".")
    return 0.5 * 10.0 ** -len(decimals)


def who(row: Row) -> tuple[str, ...]:
    # Tables 4 and 11 of LCEG shorten names, each in its way.
    name = "" if row["method"] else row["paper_method"]
    return row["paper"], row["base_model"], row["method"], row["frozen"], row["unit"], name


def parts_of(average: Row) -> list[Row]:
    tasks = (average["mean_tasks"] or average["task"]).split()
    lengths = (average["mean_lengths"] or average["eval_length"]).split() or [""]
    there = {
        (row["task"], row["eval_length"]): row
        for row in SCORES
        if row["place"] == average["parts_in"] and who(row) == who(average)
    }
    if average["mean_lengths"]:
        # A mean over both is that of the printed means of the lengths.
        return [there[average["task"], length] for length in lengths]
    return [there[task, length] for task in tasks for length in lengths]


AVERAGES = [row for row in SCORES if row["parts_in"] and row["value"]]
CONTRADICTED = {
    "lceg-03": 2, "lceg-10": 1, "harpe-01": 6, "harpe-02": 1, "harpe-03": 1,
}  # fmt: skip
"""How many printed averages each erratum is about."""


def is_off(average: Row) -> bool:
    parts = parts_of(average)
    assert parts
    assert all(part["value"] for part in parts), average["id"]
    of_parts = max(half_a_digit(part["printed"]) for part in parts)
    # A mean of n rounded parts: four standard deviations of n even errors.
    rounding = half_a_digit(average["printed"]) + of_parts * min(1, 4 / math.sqrt(3 * len(parts)))
    off = abs(fmean(float(part["value"]) for part in parts) - float(average["value"]))
    return off > rounding + 1e-9


def test_every_printed_average_is_that_of_its_parts_but_for_those_of_the_errata():
    assert len(AVERAGES) > 200
    off = [row for row in AVERAGES if is_off(row)]
    told = dict.fromkeys(CONTRADICTED, 0)
    for row in off:
        (erratum,) = set(row["errata"].split()) & CONTRADICTED.keys()
        told[erratum] += 1
    assert told == CONTRADICTED


# Contradictions


def table_9(method: str) -> dict[tuple[int, int], float]:
    """Perplexity by length and scale."""
    return {
        (int(row["eval_length"]), int(row["scale"])): float(row["value"])
        for row in found("lceg", 9, method)
        if row["value"]
    }


def is_the_minimum(method: str, length: int) -> bool:
    grid = table_9(method)
    name = {"ntk_frozen": "NTK-Frozen", "ntk_32k": "NTK-32K", "ntk_64k": "NTK-64K"}[method]
    (used,) = setting("lceg", "Table 8", "inference_scale", name, eval_length=length)
    return grid[length, int(used)] == min(v for (at, _), v in grid.items() if at == length)


def mean_of_13(table: int, method: str) -> float:
    values = [
        float(row["value"]) for row in found("lceg", table, method) if row["task"] != "average"
    ]
    assert len(values) == 13
    return round(fmean(values), 2)


def printed_13(table: int, method: str) -> float:
    return score("lceg", table, method, task="average")


def better_in_table_1() -> set[tuple[str, str, str]]:
    """(benchmark, approximate or frozen method, tuned exact method it beats)."""
    beaten = set()
    table = found("lceg", 1)
    for row in table:
        for other in table:
            if (
                row["paper_benchmark"] == other["paper_benchmark"]
                and "false" in (row["exact_attention"], row["frozen"])
                and not (row["exact_attention"] == "true" and row["frozen"] == "false")
                and (other["exact_attention"], other["frozen"]) == ("true", "false")
            ):
                gain = float(row["value"]) - float(other["value"])
                if (gain < 0) if row["unit"] == "perplexity" else (gain > 0):
                    beaten.add((row["paper_benchmark"], row["method"], other["method"]))
    return beaten


def yarn_minus_by_parts() -> list[float]:
    tuned = [series("yarn", 5, name, frozen=False) for name in ("yarn", "ntk_by_parts")]
    return [round(a - b, 2) for a, b in zip(*tuned, strict=True)]


def other_five(length: int) -> float:
    """HARPE's mean over the five RULER tasks that are no needles, from two printed means."""
    of_13 = score("harpe", 7, "harpe", eval_length=length)
    return round((13 * of_13 - 8 * score("harpe", 4, "harpe", eval_length=length)) / 5, 1)


def needle_columns_minus_table_4(method: str) -> list[float]:
    return [
        round(
            fmean(series("harpe", 8, method, eval_length=length))
            - score("harpe", 4, method, eval_length=length),
            2,
        )
        for length in SIX
    ]


def scale_of(base: float, dim: int) -> float:
    """Scale that YaRN's appendix A.2 gives for a base, from 10,000."""
    return round((base / 1e4) ** ((dim - 2) / dim), 2)


def lceg_scale(s: float, times: float) -> float:
    """Scale of LCEG's section 9.2, at a multiple of the trained context."""
    return s * times - (s - 1)


def first_violation(base: float, length: int) -> int | None:
    return first_negative(frequencies_of(base, 128), length)


SIX = [4 * K, 8 * K, 16 * K, 32 * K, 64 * K, 128 * K]
FOUR_TO_64 = SIX[:5]
PG19_32K = {"task": "pg19", "eval_length": 32 * K}
PPL = {"paper_benchmark": "PPL"}

SHOWN: dict[str, Callable[[], bool]] = {
    "lceg-03": lambda: [mean_of_13(12, name) for name in ("yarn", "clex")] == [50.18, 79.12]
    == [score("lceg", 3, name, eval_length=4 * K) for name in ("clex", "yarn")],
    "lceg-04": lambda: [lceg_scale(8, at) for at in (16, 8)] == [121, 57]
    and setting("lceg", "Table 7", "scale", "NTK-64K") == [57]
    and set(setting("lceg", "Table 8", "inference_scale", "NTK-64K")) == {57}
    and all(table_9("ntk_64k")[at, 57] < table_9("ntk_64k")[at, 121] for at in FOUR_TO_64),
    "lceg-05": lambda: setting("lceg", "Table 8", "inference_scale", "NTK-Frozen")
    == [lceg_scale(2, at / 4 / K) for at in FOUR_TO_64]
    and [lceg_scale(0.5, at / 4 / K) for at in FOUR_TO_64] == [1, 1.5, 2.5, 4.5, 8.5],
    "lceg-07": lambda: [
        (name, at)
        for name in ("ntk_frozen", "ntk_32k", "ntk_64k")
        for at in FOUR_TO_64
        if not is_the_minimum(name, at)
    ] == [("ntk_32k", 4 * K), ("ntk_64k", 4 * K), ("ntk_64k", 8 * K)],
    "lceg-08": lambda: all(
        printed_13(table, "ntk_32k") == score("lceg", 3, "ntk_32k", eval_length=at)
        for table, at in zip((13, 14, 15, 16), FOUR_TO_64[1:], strict=True)
    ),
    "lceg-11": lambda: [
        row["method"] for table in range(12, 17) for row in found("lceg", table, task="cwe")
        if row["value"] and abs(float(row["value"]) * 50 - round(float(row["value"]) * 50)) > 1e-6
    ] == ["self_extend"] and mean_of_13(16, "self_extend") == 9.34,
    "lceg-14": lambda: better_in_table_1() == {
        ("Needle", "landmark", "pi"), ("Needle", "landmark", "yarn"),
        ("Mshots", "self_extend", "ntk_32k"), ("LongB", "self_extend", "pi"),
        ("LongB", "self_extend", "clex"), ("LongB", "self_extend", "yarn"),
    },
    "lceg-15": lambda: [a > b for a, b in zip(
        series("lceg", 3, "ntk_64k"), series("lceg", 3, "ntk_32k"), strict=True)]
    == [True, False, False, True, True],
    "lceg-16": lambda: [
        at for at in (2 * K, *FOUR_TO_64)
        if score("lceg", 6, "clex", eval_length=at) > score("lceg", 6, "ntk_32k", eval_length=at)
    ] == [4 * K, 8 * K, 64 * K],
    "lceg-17": lambda: not found("lceg", 5, "yarn") + found("lceg", 6, "longlora")
    and [score("lceg", 5, name, eval_length=64 * K) for name in ("clex", "self_extend")]
    == [3.60, 3.73],
    "yarn-02": lambda: [scale_of(base, dim) for base in (1e6, 5e5) for dim in (128, 64)]
    == [93.06, 86.60, 47.04, 44.25],
    "yarn-04": lambda: series("yarn", 5, "yarn", frozen=False)[:2]
    == series("yarn", 5, "yarn_4")[:2]
    and yarn_minus_by_parts() == [0.05, 0.02, -0.32, -0.03, -0.04],
    "yarn-05": lambda: [gap > 0 for gap in yarn_minus_by_parts()][:2] == [True, True],
    "harpe-01": lambda: series("harpe", 8, "yarn", task="niah_multikey_3")
    == series("harpe", 8, "abf_multi_stage", task="niah_multikey_3")
    and needle_columns_minus_table_4("yarn") == [4.75, 7.5, 5.75, 1.75, 1.0, 0.12]
    and {
        gap for name in ("pi", "self_extend", "abf_single_stage", "abf_multi_stage", "harpe")
        for gap in needle_columns_minus_table_4(name) if abs(gap) > 0.011
    } == set(),
    "harpe-03": lambda: round(fmean(
        float(row["value"]) for row in found("harpe", 7, paper_method="Mixtral")
        if row["eval_length"]), 2) == 67.53,
    "harpe-05": lambda: [other_five(at) for at in SIX] == [74.8, 61.9, 44.7, 38.4, 17.6, 27.4],
    "harpe-06": lambda: len({row["paper_method"] for row in found("harpe", 7)}) == 9
    and all(
        score("harpe", 7, "harpe", eval_length=at)
        > float(found("harpe", 7, "", paper_method="llama-2-7b-80k", eval_length=at)[0]["value"])
        for at in SIX
    )
    and score("harpe", 5, "harpe", task="mmlu") < score("harpe", 5, "abf_multi_stage", task="mmlu"),
    "rope_base-02": lambda: [
        float(row["value"]) for row in found("rope_base", 4, "rope_base_method_1", unit="count")
    ] == [count_negative(frequencies_of(5e6, 128), at * K) for at in (15, 30)] == [0, 0],
    "rope_base-03": lambda: first_violation(1.16e4, 2 * K) is None
    and first_violation(2.35e5, 16 * K) is None,
    "rope_base-04": lambda: [
        first_violation(base, at * K) for base, at in ((3.1e5, 16), (6.4e5, 32), (1e6, 32))
    ] == [12223, 27685, 27115],
    "rope_base-07": lambda: all(
        setting("rope_base", "Table 1", "rope_base", name)
        < setting("rope_base", "Table 2", "rope_base_lower_bound", "", eval_length=length)
        for name, length in (("LLaMA-7B", 2 * K), ("Llama-2-7B", 4 * K), ("Baichuan2-7B", 4 * K))
    ),
    "rope_base-08": lambda: first_violation(100, 4 * K) == 59,
    "between-01": lambda: [
        printed_13(12, "none"), score("harpe", 7, "none", eval_length=4 * K),
        round(fmean(series("lceg", 12, "none")[:8]), 2),
        score("harpe", 4, "none", eval_length=4 * K),
    ] == [80.94, 79.4, 90.85, 90.90],
    "between-04": lambda: all(
        1.15 < table_9(name)[at, scale] / score("lceg", 2, name, task="pg19", eval_length=at) < 1.24
        for name, at, scale in (("ntk_frozen", 4 * K, 1), ("ntk_32k", 32 * K, 29),
                                ("ntk_64k", 64 * K, 57))
    ) and round(table_9("ntk_frozen")[32 * K, 15]
                / score("lceg", 2, "ntk_frozen", **PG19_32K), 2) == 1.39,
    "between-05": lambda: all(
        1e4 * scale ** (128 / 126)
        < setting("rope_base", "Table 2", "rope_base_lower_bound", "", eval_length=at)[0]
        for scale, at in ((29, 32 * K), (57, 64 * K))
    ) and min(
        float(row["value"]) for row in SETTINGS if row["setting"].startswith("rope_base_head")
    ) == 1.0e6,
}  # fmt: skip


def test_the_figures_show_the_contradiction():
    assert SHOWN.keys() <= LISTED
    assert [erratum for erratum, shows in SHOWN.items() if not shows()] == []


# Names


def test_rows_have_ids_and_errata_of_their_own():
    for rows in (SCORES, SETTINGS, ERRATA):
        assert len({row["id"] for row in rows}) == len(rows)
    named = {e for row in (*SCORES, *SETTINGS) for e in row["errata"].split()}
    assert named <= LISTED
    assert (len(SCORES), len(SETTINGS)) == (2443, 333)


def test_values_are_the_printed_figures():
    for row in SCORES:
        text = row["printed"].rstrip("%").replace(",", "")
        if not row["value"]:
            assert text in ("-", "NaN", "?") or text.startswith(">")
        elif "+" in text:
            assert sum(map(float, text.split("+"))) == float(row["value"])
        elif text.endswith("k"):
            assert float(text[:-1]) in (float(row["value"]) / 1000, float(row["value"]) / K)
        else:
            assert float(text) == float(row["value"])


def test_names_that_join_are_registered():
    assert {row["base_model"] for row in SCORES} - {""} <= set(MODELS.names())
    assert {row["benchmark"] for row in SCORES} - {""} <= set(BENCHMARKS.names())
    labels = {row["method"] for row in (*SCORES, *SETTINGS)} - {""}
    unknown = {
        label
        for label in labels - set(METHODS.names())
        if not any(label.startswith(f"{name}_") for name in METHODS.names())
    }
    # The paper's own form of dynamic scaling is dynamic_yarn with other parameters.
    assert unknown == {"dynamic_ntk_by_parts"}


def test_table_9_is_the_same_among_scores_and_settings():
    among_settings = {
        (row["method"], row["eval_length"], row["scale"]): row["value"]
        for row in SETTINGS
        if row["setting"] == "perplexity_of_two_documents"
    }
    among_scores = {
        (row["method"], row["eval_length"], row["scale"]): row["value"] for row in found("lceg", 9)
    }
    assert among_settings == among_scores
    assert not math.isnan(max(float(v) for v in among_scores.values() if v))
