"""The papers' figures stay as transcribed, and average as printed except where errata say so."""

import csv
import hashlib
import math
import shutil
from statistics import fmean

import duckdb

from catalog import build
from lce_core.benchmarks import BENCHMARKS
from lce_core.methods import METHODS
from lce_core.models import MODELS

K = 1024
Row = dict[str, str]


def rows_of(name: str) -> list[Row]:
    with (build._REFERENCE / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


SCORES, SETTINGS, ERRATA = rows_of("scores"), rows_of("hyperparameters"), rows_of("errata")


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


# Names


TRANSCRIBED = {
    "scores": "4e90efa7fece1a305e537a6dfe691eef43723c5dc55e3f1ded978993460fce10",
    "hyperparameters": "dc1f647daa12099dfe3723f6a0e352b630c6531077fec4ab8e40554e8044e1dc",
    "errata": "4defcbb3c87ae7c811dfbf8a5e3c2834f2ff1cbfcf43645db80ae205dd5ebfa1",
}
"""Of files that change only if somebody reads a paper again."""


def test_the_transcribed_files_have_their_sha256():
    for name, digest in TRANSCRIBED.items():
        file = build._REFERENCE / f"{name}.csv"
        assert hashlib.sha256(file.read_bytes()).hexdigest() == digest, name


def test_rows_have_ids_and_errata_of_their_own():
    for rows in (SCORES, SETTINGS, ERRATA):
        assert len({row["id"] for row in rows}) == len(rows)
    named = {e for row in (*SCORES, *SETTINGS) for e in row["errata"].split()}
    assert named <= {row["id"] for row in ERRATA}


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
        (row["method"], row["eval_length"], row["scale"]): row["value"]
        for row in SCORES
        if (row["paper"], row["place"]) == ("lceg", "Table 9")
    }
    assert among_settings == among_scores
    assert not math.isnan(max(float(v) for v in among_scores.values() if v))
