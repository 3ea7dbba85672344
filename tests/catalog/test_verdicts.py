"""What decides an expectation: the registered order, the unit of the statement, and the documents.

Strategy: what an author may change after the results is changed, and the other verdicts stay.
"""

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.catalog.test_catalog import ask
from tests.catalog.test_comparisons import losses, passkey, passkeys
from tests.dashboards.test_claims import entries
from tests.support.catalogs.answered_catalog import Answered, registrations, written

METHODS = ("none", "pi", "yarn", "ntk_aware")
FROZEN: dict[str, Any] = {"unit": "nats", "extra": {"checkpoint": "pretrained"}}


def texts(gains: dict[str, float], number: int = 8, noise: float = 0.02) -> list[Answered]:
    """Losses of frozen methods on the same documents; a positive gain is a lower loss."""
    rng = np.random.default_rng(0)
    hard = rng.normal(2, 0.5, number)
    return [
        passkey(method, 512, hard - gain + rng.normal(0, noise, number), **FROZEN)
        for method, gain in gains.items()
    ]


def entry(number: int, method: str, other: str, **changes: Any) -> dict[str, Any]:
    return {
        "entry": number, "text": f"{method} beats {other}", "base_model": "toy_llama",
        "method": method, "frozen": True, "expected": "better", "margin": None,
        "other_method": other, "other_frozen": True, "benchmark": "passkey", "eval_length": 512,
        **changes,
    }  # fmt: skip


def outcomes(path: Path) -> dict[str, tuple[str, float]]:
    return {
        row["text"]: (row["outcome"], row["p_adjusted"]) for row in ask(path, "FROM expectations")
    }


GAINS = {"none": 0.0, "pi": 0.1, "yarn": 0.2, "ntk_aware": 0.2}


def test_entries_are_tested_in_their_order_until_one_is_undecided(tmp_path):
    expects = [
        entry(0, "pi", "none"),
        entry(1, "yarn", "ntk_aware"),  # no difference: blocks what follows
        entry(2, "yarn", "none"),
    ]
    path = written(tmp_path / "c.duckdb", texts(GAINS), expects=expects)
    first, second, third = ask(path, "FROM expectations")
    assert (first["outcome"], first["p_adjusted"]) == ("confirmed", 2 / 256)
    assert (second["outcome"], second["blocked_by"]) == ("undecided", None)
    assert (third["outcome"], third["blocked_by"]) == ("undecided", 1)
    assert third["p_adjusted"] == second["p_adjusted"] > 0.05
    # An undecided margin blocks too, though the difference from 0 is significant.
    margin = entry(1, "yarn", "none", expected="equal", margin=0.2)
    path = written(
        tmp_path / "m.duckdb",
        texts(GAINS),
        expects=[expects[0], margin, expects[2] | {"method": "ntk_aware"}],
    )
    _, undecided, blocked = ask(path, "FROM expectations")
    assert undecided["outcome"] == blocked["outcome"] == "undecided"
    assert undecided["p_adjusted"] <= 0.05 < blocked["p_adjusted"]
    # Each has its share: the third is tested whatever becomes of the second. A comparison within
    # the trained context, which has no weight and is not measured here, takes no entry's share.
    default = entry(0, "pi", "none", eval_length=128) | {"entry": None, "text": "default"}
    for one, weight in zip(expects, (0.5, 0.1, 0.4), strict=True):
        one["weight"] = weight
    weighted = ask(
        written(tmp_path / "w.duckdb", texts(GAINS), expects=[*expects, default]),
        "FROM expectations WHERE entry IS NOT NULL",
    )
    assert [row["outcome"] for row in weighted] == ["confirmed", "undecided", "confirmed"]
    assert [weighted[0]["p_adjusted"], weighted[2]["p_adjusted"]] == pytest.approx(
        [2 / 256 / 0.5, 2 / 256 / 0.4]
    )


def test_finished_tasks_decide_nothing_while_another_task_is_unfinished(tmp_path):
    cells = [
        replace(cell, task=task, scores=[] if (cell.method, task) == ("yarn", "c") else cell.scores)
        for cell in texts(GAINS)
        for task in "abc"
    ]
    expects = [entry(0, "yarn", "none"), entry(1, "pi", "none")]
    first, second = ask(written(tmp_path / "c.duckdb", cells, expects=expects), "FROM expectations")
    assert (first["outcome"], first["verdict"]) == ("not measured", None)
    assert (second["outcome"], second["blocked_by"]) == ("undecided", 0)


def test_a_withdrawn_expectation_stays_in_the_list_and_in_the_order(tmp_path):
    before = [entry(0, "yarn", "ntk_aware"), entry(1, "pi", "none")]
    # A softer statement about the same pair holds, but does not decide the registered one.
    softer = entry(0, "yarn", "ntk_aware", expected="not worse", margin=0.5, text="softer")
    whole = outcomes(written(tmp_path / "whole.duckdb", texts(GAINS), expects=before))
    for name, kept in (("less", [entry(0, "pi", "none")]), ("softer", [softer, before[1]])):
        path = written(
            tmp_path / f"{name}.duckdb", texts(GAINS), expects=kept,
            registered=registrations((0, before), (1620, kept)),
        )  # fmt: skip
        found = outcomes(path)
        assert found.pop("softer", ("confirmed",))[0] == "confirmed"
        assert found == whole
        withdrawn = ask(path, "SELECT text FROM expectations WHERE withdrawn_after = 1620")
        assert withdrawn == [{"text": "yarn beats ntk_aware"}]
    # It also stays if a comparison that every study makes says the same from then on.
    strict = entry(0, "yarn", "ntk_aware", expected="not worse", margin=0.001, text="strict")
    default, rest = strict | {"entry": None, "text": "default"}, entry(1, "pi", "none")
    first = outcomes(written(tmp_path / "first.duckdb", texts(GAINS), expects=[strict, rest]))
    path = written(
        tmp_path / "left.duckdb", texts(GAINS), expects=[entry(0, "pi", "none"), default],
        registered=registrations((0, [strict, rest]), (1620, [entry(0, "pi", "none"), default])),
    )  # fmt: skip
    assert {text: one for text, one in outcomes(path).items() if text != "default"} == first
    # Such a comparison does not become the first entry when an author names it after the results.
    path = written(
        tmp_path / "late.duckdb", texts(GAINS), expects=[strict, rest],
        registered=registrations((0, [default, rest | {"entry": 0}]), (1620, [strict, rest])),
    )  # fmt: skip
    late, tested, was = ask(
        path, "SELECT text, family, is_registered, blocked_by FROM expectations"
    )
    assert (late["text"], late["family"], late["is_registered"]) == (
        "strict", "short context", False,
    )  # fmt: skip
    assert (tested["family"], tested["blocked_by"]) == ("primary", None)
    assert (was["text"], was["is_registered"]) == ("default", True)
    # It is listed once, though it was registered with and without looks.
    versions = registrations((0, before), (0, before), (1620, before[1:]))
    registered = [row | {"looks": [1, 2] if row["version"] > 1 else None} for row in versions]
    path = written(
        tmp_path / "looks.duckdb", texts(GAINS), expects=before[1:], registered=registered,
        looks=[1, 2],
    )  # fmt: skip
    listed = ask(path, "SELECT text, withdrawn_after FROM expectations")
    assert [tuple(row.values()) for row in listed] == [
        ("pi beats none", None), ("yarn beats ntk_aware", 1620),
    ]  # fmt: skip


def test_order_names_and_further_methods_change_no_number_of_a_registered_comparison(tmp_path):
    expects = [
        entry(0, first, other, eval_length=length)
        for first, other in combinations(METHODS[::-1], 2)
        for length in (256, 512)
    ]
    long = texts(GAINS)
    short = [replace(cell, eval_length=256, scores=np.array(cell.scores)[::-1]) for cell in long]
    seeds = [
        replace(cell, frozen=cell.method == "none") for cell in passkeys() if cell.method != "twin"
    ]
    tuned = [
        entry(0, first, other, frozen=False, other_frozen=other == "none")
        for first, other in (("yarn", "pi"), ("yarn", "none"), ("pi", "none"))
    ]
    keys = ("method", "other_method", "eval_length")
    columns = "p_value, p_adjusted, ci_low, ci_high"
    query = f"SELECT {', '.join(keys)}, {columns} FROM paired_difference WHERE family = 'primary'"

    def renamed(method: str) -> str:
        return method if method == "none" else f"{method}_b"

    windows = [cell for cell in losses() if cell.method != "twin"]
    of_windows = [one | {"benchmark": "perplexity"} for one in tuned]
    for name, cells, own in (
        ("texts", [*short, *long], expects),
        ("seeds", seeds, tuned),
        ("perplexity", windows, of_windows),
    ):
        twin = [replace(cell, method="a twin") for cell in cells if cell.method == "yarn"]
        wild = [
            replace(cell, method="wild", scores=np.array(cell.scores)[::-1] * (1 + cell.seed))
            for cell in cells
            if cell.method == "pi"
        ]
        found = {}
        for label, changed, order in (
            ("as it is", cells, own),
            ("reversed", cells[::-1], own[::-1]),
            ("more", [*twin, *wild, *cells], own),
            (
                "renamed",
                [replace(cell, method=renamed(cell.method)) for cell in cells],
                [one | {key: renamed(one[key]) for key in keys[:2]} for one in own],
            ),
        ):
            rows = ask(written(tmp_path / f"{name} {label}.duckdb", changed, expects=order), query)
            found[label] = {
                (*(str(row[key]).removesuffix("_b") for key in keys), column): value
                for row in rows
                for column, value in row.items()
                if column not in keys
            }
        assert len(found["as it is"]) == 2 * 4 * len(own)
        for numbers in found.values():
            assert numbers == pytest.approx(found["as it is"])


def test_one_training_run_confirms_nothing_about_methods(tmp_path):
    cells = [
        replace(cell, frozen=cell.method == "none", extra={"checkpoint": cell.method})
        for cell in texts(GAINS)
    ]
    expects = [
        entry(0, "yarn", "none", frozen=False, claim="c"),
        entry(1, "pi", "none", frozen=False, claim="c", expected="not worse", margin=0.01),
        entry(2, "ntk_aware", "none", frozen=False, expected="equal", margin=0.18),
    ]
    path = written(tmp_path / "c.duckdb", cells, expects=expects)
    rows = ask(path, "FROM expectations")
    # A difference from 0 does not decide whether it lies within the margin.
    assert [row["outcome"] for row in rows] == ["on one training run"] * 2 + ["undecided"]
    assert {row["verdict"] for row in rows} == {"better"}
    (claim,) = ask(path, "FROM claims")
    assert (claim["num_on_one_run"], claim["num_confirmed"]) == (2, 0)


def test_six_documents_decide_at_a_difference_of_nine_deviations(tmp_path):
    gains = {f"m{number}": 0.118 * (number == 0) for number in range(14)}
    cells = texts(gains, number=6, noise=0.013 / np.sqrt(2))
    expects = [entry(0, "m0", f"m{number}") for number in range(1, 14)]
    rows = ask(written(tmp_path / "c.duckdb", cells, expects=expects), "FROM expectations")
    assert {row["outcome"] for row in rows} == {"confirmed"}
    five = texts(gains, number=5)
    rows = ask(written(tmp_path / "five.duckdb", five, expects=expects), "FROM expectations")
    assert {row["outcome"] for row in rows} == {"too few"}


def test_detectable_differences_and_intervals_stay_within_the_metric(tmp_path):
    rng = np.random.default_rng(0)
    cells = [
        passkey(method, 512, (rng.random(40) < share).astype(float), False, seed)
        for seed, shares in enumerate([(0.1, 0.9), (0.9, 0.8)])
        for method, share in zip(("pi", "yarn"), shares, strict=True)
    ]
    (row, _) = ask(written(tmp_path / "c.duckdb", cells), "FROM paired_difference")
    assert (row["verdict"], row["smallest_detectable"]) == ("too few", None)
    assert -1 <= row["ci_low"] <= row["ci_high"] <= 1


def test_perplexity_predicts_within_each_document(tmp_path):
    rng = np.random.default_rng(0)
    hard, cells = rng.normal(0, 0.1, 10), []
    for number, method in enumerate(("none", "a", "b", "c", "d")):
        nll = [1.0 + 0.1 * number] * 4
        cells.append(Answered(method, True, 0, "perplexity", "text", 512, nll,
                              float(np.exp(nll[0])), unit="perplexity"))  # fmt: skip
        scores = 0.9 - 0.1 * number + hard + rng.normal(0, 0.02, 10)
        cells.append(passkey(method, 512, scores))
    claim: dict[str, Any] = {
        "entry": 0, "text": "it predicts", "claim": "LCEG: it predicts", "base_model": "toy_llama",
        "expected": "predicts", "benchmark": "passkey", "eval_length": 512, "among": None,
    }  # fmt: skip
    few = claim | {"text": "of three", "entry": 1, "among": ["a", "b", "c"]}
    absent = claim | {"text": "of none", "entry": 2, "among": ["a", "b", "pi-tuned"]}
    path = written(tmp_path / "c.duckdb", cells, expects=[claim, few, absent])
    rows = {row["text"]: row for row in ask(path, "FROM expectations")}
    assert rows["it predicts"]["outcome"] == "confirmed"
    assert rows["it predicts"]["difference"] > 0.8
    assert rows["it predicts"]["p_adjusted"] == 2 / 1024
    assert rows["of three"]["outcome"] == "confirmed"
    assert rows["of none"]["outcome"] == "not measured"
    once = [replace(cell, frozen=cell.method == "none") for cell in cells]
    again = [replace(cell, seed=1) for cell in once]
    for own, outcome in ((once, "on one training run"), ([*once, *again], "confirmed")):
        path = written(tmp_path / f"{outcome}.duckdb", own, expects=[claim])
        (comparison,) = entries(path)[0].comparisons
        assert comparison.outcome == outcome
        assert ("decided for these weights only" in comparison.finding) == (own is once)


def test_another_metric_is_compared_in_nats_where_the_study_names_it(tmp_path):
    gains = {"none": 0.2, "yarn": 0.0}
    cells = [replace(cell, unit="accuracy") for cell in texts(gains)]
    expects = [entry(0, "yarn", "none", metric="margin"), entry(1, "yarn", "none")]
    path = written(
        tmp_path / "c.duckdb", cells, expects=expects, margins={"yarn": 3.0, "none": 0.2}
    )
    by_margin, default = ask(path, "FROM expectations")
    assert (by_margin["metric"], by_margin["outcome"]) == ("margin", "confirmed")
    ends = [by_margin[name] for name in ("ci_low", "difference", "ci_high")]
    assert ends == pytest.approx([2.8] * 3, abs=0.05)  # not cut to the scale of an accuracy
    assert (default["metric"], default["outcome"]) == ("accuracy", "confirmed")
    pairs = ask(path, "SELECT DISTINCT metric FROM paired_difference")
    assert pairs == [{"metric": "accuracy"}]
