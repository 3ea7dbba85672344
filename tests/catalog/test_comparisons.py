"""What the catalog says of two methods is what the same answers say to other code.

Strategy: made-up answers go into real DuckDB catalogs. Differences, intervals and p-values are
computed again from the drawn numbers with scipy and numpy alone; rules of what is compared at all
are tried with one cell changed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from catalog.comparisons.samples import aggregation_of
from catalog.queries import logical_digest, run_query
from lce_core.statistics.power import mcnemar_power
from tests.support.catalogs.answered_catalog import TRAINED, Answered, written

SEEDS, TASKS, WINDOWS, PROMPTS = (0, 1, 2), ("code", "prose"), 24, 40
LEVELS = {("none", True): 2.0, ("pi", False): 1.9, ("yarn", False): 1.6, ("twin", False): 1.6}
FOUND = {("none", True): 0.2, ("pi", False): 0.75, ("yarn", False): 0.8, ("twin", False): 0.8}


def losses() -> list[Answered]:
    """Perplexity at 512: windows as hard for all, some noise of each method and seed."""
    rng = np.random.default_rng(11)
    hard = {task: rng.normal(0.0, 0.4, WINDOWS) for task in TASKS}
    cells = []
    for (method, frozen), level in LEVELS.items():
        for seed in SEEDS:
            noise = np.random.default_rng([seed, 7, int(10 * level)])
            for task in TASKS:
                nll = level + hard[task] + noise.normal(0.0, 0.1, WINDOWS)
                cells.append(
                    Answered(
                        method, frozen, seed, "perplexity", task, 512, nll,
                        float(np.exp(nll.mean())), [str(n) for n in range(WINDOWS)],
                        seeded=False, unit="perplexity",
                    )
                )  # fmt: skip
    return cells


def passkeys(length: int = 512) -> list[Answered]:
    cells = []
    for (method, frozen), share in FOUND.items():
        for seed in SEEDS:
            drawn = np.random.default_rng([seed, length]).random(PROMPTS)
            right = (drawn < share).astype(float)
            cells.append(
                Answered(
                    method, frozen, seed, "passkey", "single", length, right, float(right.mean())
                )
            )
    return cells


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cells = [*losses(), *passkeys(), *passkeys(128)]
    return written(tmp_path_factory.mktemp("compared") / "catalog.duckdb", cells)


def ask(catalog: Path, sql: str) -> list[dict[str, Any]]:
    columns, rows = run_query(catalog, sql)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def pair(catalog: Path, first: str, second: str, where: str) -> dict[str, Any]:
    (row,) = ask(
        catalog,
        f"FROM paired_difference WHERE method = '{first}' AND other_method = '{second}'"
        f" AND {where}",
    )
    return row


def scores_of(method: str, task: str, cells: list[Answered]) -> np.ndarray:
    """(seeds, prompts)."""
    return np.array([cell.scores for cell in cells if (cell.method, cell.task) == (method, task)])


def test_a_difference_of_perplexities_is_that_of_their_means_with_its_own_interval(catalog) -> None:
    row = pair(catalog, "yarn", "pi", "benchmark = 'perplexity'")
    cells = losses()
    ours, theirs = ([scores_of(name, task, cells) for task in TASKS] for name in ("yarn", "pi"))

    def mean(*tasks: np.ndarray, axis: int = -1) -> Any:
        return sum(np.exp(task.mean(axis=axis)).mean(axis=0) for task in tasks) / len(tasks)

    assert row["value"] == pytest.approx(mean(*ours))
    assert row["difference"] == pytest.approx(mean(*ours) - mean(*theirs))
    seeds = [
        np.mean(
            [
                np.exp(a[seed].mean()) - np.exp(b[seed].mean())
                for a, b in zip(ours, theirs, strict=True)
            ]
        )
        for seed in SEEDS
    ]
    assert (row["lowest"], row["highest"]) == pytest.approx((min(seeds), max(seeds)))
    # The bootstrap that needs no linear terms: windows of each task redrawn, the same in all seeds.
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(4000):
        at = [rng.integers(WINDOWS, size=WINDOWS) for _ in TASKS]
        drawn.append(
            mean(*(a[:, i] for a, i in zip(ours, at, strict=True)))
            - mean(*(b[:, i] for b, i in zip(theirs, at, strict=True)))
        )
    spread = np.std(drawn)
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert row["ci_low"] == pytest.approx(low, abs=0.35 * spread)
    assert row["ci_high"] == pytest.approx(high, abs=0.35 * spread)
    assert row["ci_low"] < low + 0.1 * spread, "no narrower than 48 windows allow"
    gaps = np.concatenate([(a - b).mean(axis=0) for a, b in zip(ours, theirs, strict=True)])
    assert row["p_value"] == pytest.approx(stats.wilcoxon(gaps, method="exact").pvalue, rel=1e-6)
    counts = (row["num_clusters"], row["num_samples"], row["num_seeds"], row["tasks"])
    assert counts == (48, 144, 3, "code, prose")
    assert row["verdict"] == "better"
    assert row["task"] is None


def test_prompts_of_their_own_in_each_seed_are_independent_and_tested_by_mcnemar(catalog) -> None:
    row = pair(catalog, "pi", "none", "benchmark = 'passkey' AND eval_length = 512")
    ours = scores_of("pi", "single", passkeys())
    theirs = scores_of("none", "single", passkeys())
    wins, defeats = int((ours > theirs).sum()), int((ours < theirs).sum())
    assert (row["num_better"], row["num_worse"], row["num_clusters"]) == (wins, defeats, 120)
    assert row["p_value"] == pytest.approx(stats.binomtest(wins, wins + defeats).pvalue)
    assert row["test"] == "mcnemar"
    gaps = (ours - theirs).ravel()
    low, high = stats.t.interval(0.95, 119, gaps.mean(), stats.sem(gaps))
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((low, high), abs=0.02)


def test_holm_holds_each_family_together_and_no_other(catalog) -> None:
    families = {}
    for row in ask(catalog, "SELECT DISTINCT ON (p.holm_family, least(method, other_method),"
                   " greatest(method, other_method)) * FROM paired_difference p"):  # fmt: skip
        families.setdefault(row["holm_family"], []).append(row)
    assert {name: len(rows) for name, rows in families.items()} == {
        f"{what} tokens: {with_whom}": number
        for what in ("perplexity (code, prose), 512", "passkey (single), 128",
                     "passkey (single), 512")
        for with_whom, number in (("each with none", 3), ("each with each, without none", 3))
    } | {f"perplexity ({task}), 512 tokens: each with none": 3 for task in TASKS}  # fmt: skip
    for rows in families.values():
        highest = 0.0
        for place, row in enumerate(sorted(rows, key=lambda one: one["p_value"])):
            highest = max(highest, min(1.0, row["p_value"] * (len(rows) - place)))
            assert row["p_holm"] == pytest.approx(highest)
            assert row["num_comparisons"] == len(rows)


def test_both_rows_of_a_pair_mirror_each_other(catalog) -> None:
    rows = ask(catalog, "FROM paired_difference WHERE benchmark = 'passkey'")
    keyed = {(r["holm_family"], r["method"], r["other_method"]): r for r in rows}
    opposite = {"better": "worse", "worse": "better"}
    for (family, first, second), one in keyed.items():
        other = keyed[family, second, first]
        for name, mirrored in (
            ("difference", "difference"), ("ci_low", "ci_high"), ("lowest", "highest"),
        ):  # fmt: skip
            assert one[name] == -other[mirrored]
        assert one["verdict"] == opposite.get(other["verdict"], other["verdict"])
        assert (one["num_better"], one["value"]) == (other["num_worse"], other["other_value"])


def test_methods_with_the_same_answers_are_the_same_and_the_study_says_what_it_could_see(
    catalog,
) -> None:
    row = pair(catalog, "twin", "yarn", "benchmark = 'passkey' AND eval_length = 512")
    assert (row["verdict"], row["difference"], row["p_holm"]) == ("the same", 0.0, 1.0)
    # Of 120 prompts as one of 3 comparisons: McNemar's test on all prompts that then differ.
    seen = row["smallest_detectable"]
    assert mcnemar_power(120, seen, seen, alpha=0.05 / 3) == pytest.approx(0.8, abs=0.12)


def changed(cells: list[Answered], method: str, **changes: Any) -> list[Answered]:
    """With the first seed's cell of a method changed."""
    return [
        replace(cell, **changes) if (cell.method, cell.seed) == (method, 0) else cell
        for cell in cells
    ]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"scores": []}, id="not done"),
        pytest.param({"samples": [*range(1, PROMPTS + 1)]}, id="other prompts"),
        pytest.param({"value": 0.123}, id="a number that is no mean of its prompts"),
        pytest.param({"extra": {"profile": "clean"}}, id="another profile"),
    ],
)
def test_a_method_that_was_not_asked_the_same_is_not_compared(changes, tmp_path: Path) -> None:
    cells = changed(passkeys(), "yarn", **changes)
    path = written(tmp_path / "catalog.duckdb", cells)
    rows = ask(path, "SELECT DISTINCT method, num_seeds FROM paired_difference ORDER BY ALL")
    seeds = {row["method"]: row["num_seeds"] for row in rows}
    # In another profile it is another benchmark, and two seeds of the usual one are left.
    expected = {"none": 3, "pi": 3, "twin": 3}
    if "extra" in changes:
        assert {row["method"] for row in rows} == {*expected, "yarn"}
        assert pair(path, "yarn", "pi", "true")["num_seeds"] == 2
    else:
        assert seeds == expected


def test_methods_that_share_some_tasks_are_compared_over_these(tmp_path: Path) -> None:
    cells = [cell for cell in losses() if (cell.method, cell.task) != ("yarn", "prose")]
    path = written(tmp_path / "catalog.duckdb", cells)
    assert pair(path, "yarn", "pi", "true")["tasks"] == "code"
    assert pair(path, "twin", "pi", "true")["tasks"] == "code, prose"


def test_two_documents_are_too_few_whatever_the_difference(tmp_path: Path) -> None:
    cells = [
        replace(cell, scores=cell.scores[:2], value=float(np.exp(np.mean(cell.scores[:2]))),
                clusters=cell.clusters[:2])
        for cell in losses() if cell.task == "code"
    ]  # fmt: skip
    row = pair(written(tmp_path / "catalog.duckdb", cells), "yarn", "none", "true")
    assert (row["verdict"], row["ci_low"], row["smallest_detectable"]) == ("too few", None, None)
    assert row["difference"] < 0


def test_seeds_that_disagree_give_no_verdict(tmp_path: Path) -> None:
    def right(cell: Answered) -> list[float]:
        if cell.method == "none":
            return [0.0] * 20 + [1.0] * 20
        return [0.0] * 25 + [1.0] * 15 if cell.seed == 2 else [1.0] * 40

    cells = [
        replace(cell, scores=right(cell), value=float(np.mean(right(cell))))
        for cell in passkeys() if cell.method in ("none", "pi")
    ]  # fmt: skip
    row = pair(written(tmp_path / "catalog.duckdb", cells), "pi", "none", "true")
    assert row["p_holm"] < 1e-6
    assert row["ci_low"] > 0 > row["lowest"]
    assert row["verdict"] == "not in every seed"


def test_beside_a_difference_stands_its_interval_for_other_seeds(catalog: Path) -> None:
    rows = {name: pair(catalog, name, "none", "eval_length = 512 AND benchmark = 'passkey'")
            for name in ("yarn", "pi")}  # fmt: skip
    for name, row in rows.items():
        asked = [cell for cell in passkeys() if cell.method in (name, "none")]
        ours, theirs = (scores_of(one, "single", asked) for one in (name, "none"))
        gaps = (ours - theirs).mean(axis=1)  # prompts of their own in each seed: nested
        half = stats.t.ppf(0.975, 2) * gaps.std(ddof=1) / math.sqrt(3)
        expected = (gaps.mean() - half, gaps.mean() + half)
        assert (row["seeds_low"], row["seeds_high"]) == pytest.approx(expected)
    # The same windows in all seeds: crossed. Tasks have as many, and losses are powers of means.
    row = pair(catalog, "yarn", "none", "benchmark = 'perplexity' AND task = 'code'")
    ours, theirs = (scores_of(name, "code", losses()) for name in ("yarn", "none"))
    added = [np.exp(one.mean(axis=1, keepdims=True)) * (1 + one - one.mean(axis=1, keepdims=True))
             for one in (ours, theirs)]  # fmt: skip
    gaps = added[0] - added[1]
    square = {
        "seeds": WINDOWS * gaps.mean(axis=1).var(ddof=1),
        "windows": 3 * gaps.mean(axis=0).var(ddof=1),
    }
    rest = gaps - gaps.mean(axis=1, keepdims=True) - gaps.mean(axis=0) + gaps.mean()
    square_rest = (rest**2).sum() / (2 * (WINDOWS - 1))
    half = math.sqrt(
        (stats.t.ppf(0.975, 2) ** 2 * square["seeds"]
         + stats.t.ppf(0.975, WINDOWS - 1) ** 2 * max(0, square["windows"] - square_rest))
        / gaps.size
    )  # fmt: skip
    expected = (row["difference"] - half, row["difference"] + half)
    assert (row["seeds_low"], row["seeds_high"]) == pytest.approx(expected)


def test_a_test_that_finds_the_opposite_supports_no_difference(tmp_path: Path) -> None:
    """Tasks weigh alike and the test counts prompts: a large task can outvote a small one."""
    rng, cells = np.random.default_rng(0), []
    for task, number, gap in (("large", 200, 0.02), ("small", 20, -0.5)):
        plain = 0.5 + rng.normal(0, 0.05, number)
        moved = plain + gap + rng.normal(0, 0.01, number)
        for method, scores in (("pi", moved), ("yarn", plain)):
            value = float(scores.mean())
            cells.append(Answered(method, True, 0, "longbench", task, 512, scores, value))
    row = pair(written(tmp_path / "catalog.duckdb", cells), "pi", "yarn", "task IS NULL")
    assert row["ci_high"] < 0
    assert row["num_better"] > 190
    assert (row["p_value"], row["verdict"]) == (1.0, "no difference found")


@pytest.mark.parametrize("order", [("pi", "none", "yarn", "twin"), ("none", "yarn", "twin", "pi")])
def test_who_is_asked_other_prompts_takes_no_comparison_from_the_others(
    order: tuple[str, ...], tmp_path: Path
) -> None:
    cells = sorted(passkeys(), key=lambda cell: order.index(cell.method))
    asked = changed(cells, "pi", scores=[0.0, 1.0] * PROMPTS, value=0.5)  # in one seed of three
    path = written(tmp_path / "catalog.duckdb", asked)
    rows = ask(path, "SELECT method, other_method FROM paired_difference")
    pairs = {frozenset(row.values()) for row in rows}
    expected = (("yarn", "none"), ("twin", "none"), ("yarn", "twin"))
    assert pairs == {frozenset(one) for one in expected}


def test_seeds_that_share_a_result_are_one_run(tmp_path: Path) -> None:
    shared = [
        replace(cell, seed=seed, frozen=True, result=f"{cell.method}-{cell.task}")
        for seed in SEEDS for cell in losses() if cell.seed == 0
    ]  # fmt: skip
    path = written(tmp_path / "catalog.duckdb", shared)
    row = pair(path, "yarn", "pi", "true")
    assert (row["num_seeds"], row["num_samples"]) == (1, 2 * WINDOWS)
    assert (row["seeds_low"], row["seeds_high"]) == (None, None)
    found = ask(path, "SELECT DISTINCT num_seeds, seed_sd FROM mean_over_seeds")
    assert found == [{"num_seeds": 1, "seed_sd": None}]


@pytest.mark.parametrize("missing", [64, 512])
def test_the_base_models_threshold_follows_from_the_length_that_it_is_taken_at(
    missing: int, tmp_path: Path
) -> None:
    right, cells = [1.0] * 19 + [0.0], []
    for method in ("none", "pi"):
        for length in (64, 128, 512):
            done = (method, length) != ("none", missing)
            scores = right if done else []
            cells.append(Answered(method, True, 0, "passkey", "single", length, scores, 0.95))
    rows = ask(written(tmp_path / "catalog.duckdb", cells), "FROM effective_length")
    row = next(row for row in rows if row["method"] == "pi")
    assert row["threshold"] == pytest.approx(0.855)
    assert (row["tokens"], row["higher_is_better"]) == (512, True)


def test_where_the_base_model_finds_nothing_nobody_holds_its_score(tmp_path: Path) -> None:
    cells = [
        Answered(method, True, 0, "passkey", "single", length, [0.0] * 20, 0.0)
        for method in ("none", "pi") for length in (64, 128, 512)
    ]  # fmt: skip
    assert ask(written(tmp_path / "catalog.duckdb", cells), "FROM effective_length") == []


def orders(path: Path, *, missing: str = "", clean: int = 0, exact: bool = True) -> list[Any]:
    """Of seven methods, the better the lower their perplexity; `clean` of them in that profile."""
    cells = []
    for number, name in enumerate(("none", "a", "b", "c", "d", "e", "f")):
        nll, right = [1.0 + 0.1 * number] * 2, 40 - 5 * number
        scores = [1.0] * right + [0.0] * (40 - right)
        whose = {"exact_attention": exact or number % 2 == 0}
        cells.append(Answered(name, True, 0, "perplexity", "text", 512, nll,
                              float(np.exp(nll[0])), unit="perplexity", **whose))  # fmt: skip
        extra = {"profile": "clean"} if number < clean else {}
        cells.append(Answered(name, True, 0, "passkey", "single", 512,
                              [] if name == missing else scores, right / 40, extra=extra,
                              **whose))  # fmt: skip
    catalog = written(path, cells)
    points = ask(catalog, "FROM perplexity_vs_downstream")
    return [ask(catalog, "FROM perplexity_agreement"), len(points)]


def test_an_order_of_methods_needs_no_base_model_and_is_of_the_points_that_are_shown(
    tmp_path: Path,
) -> None:
    (row,), points = orders(tmp_path / "all.duckdb")
    assert (row["methods"], row["num_methods"], points) == ("all", 7, 7)
    assert row["p_holm"] == row["p_value"]  # of exact methods alone it is the same comparison
    (row,), points = orders(tmp_path / "missing.duckdb", missing="none")
    assert (row["num_methods"], points) == (6, 6)
    assert row["kendall"] == pytest.approx(1.0)
    (row,), points = orders(tmp_path / "profiles.duckdb", clean=3)
    assert (row["num_methods"], points) == (4, 4)
    rows, _ = orders(tmp_path / "some.duckdb", exact=False)
    assert [(row["methods"], row["num_methods"]) for row in rows] == [
        ("all", 7),
        ("exact attention", 4),
    ]


def test_the_effective_length_is_the_last_that_keeps_the_base_models_own_score(
    tmp_path: Path,
) -> None:
    cells = []
    for method, by_length in {
        "none": {64: 1.0, 128: 0.9, 256: 0.1, 512: 0.0},
        "yarn": {64: 0.95, 128: 0.9, 256: 0.85, 512: 0.5},
    }.items():
        for length, share in by_length.items():
            right = [1.0] * round(200 * share) + [0.0] * round(200 * (1 - share))
            cells.append(Answered(method, True, 0, "passkey", "single", length, right, share))
            nll = [share + 0.001 * math.sin(n) for n in range(50)]
            value = float(np.exp(np.mean(nll)))
            cells.append(
                Answered(
                    method, True, 0, "perplexity", "code", length, nll, value, unit="perplexity"
                )
            )
    rows = ask(written(tmp_path / "catalog.duckdb", cells), "FROM effective_length")
    found = {(row["method"], row["benchmark"]): row for row in rows}
    keyed = {key: (row["ci_low"], row["tokens"], row["ci_high"]) for key, row in found.items()}
    # 0.9 of 0.9 is 0.81: 0.85 of 200 prompts is above it, but not surely.
    assert found["yarn", "passkey"]["threshold"] == pytest.approx(0.81)
    assert keyed["none", "passkey"] == (TRAINED, TRAINED, TRAINED)
    assert keyed["yarn", "passkey"] == (TRAINED, 256, 256)
    # Here losses fall with length but for the first, which exceeds exp(0.9) by less than a tenth.
    assert keyed["yarn", "perplexity"] == (512, 512, 512)
    assert found["none", "perplexity"]["threshold"] == pytest.approx(1.1 * math.exp(0.9), rel=1e-4)


def test_perplexity_is_held_against_each_benchmark_with_and_without_approximate_attention(
    tmp_path: Path,
) -> None:
    rng, cells = np.random.default_rng(2), []
    truth = {}
    for number in range(9):
        exact = number < 6
        nll = [1.0 + 0.1 * number] * 4 if exact else [0.5] * 4
        share = round(1 - 0.1 * number + 0.15 * rng.normal(), 1) if exact else 0.0
        right = [1.0] * round(20 * share) + [0.0] * round(20 * (1 - share))
        truth[number] = (math.exp(nll[0]), float(np.mean(right)), exact)
        for benchmark, task, scores, value, unit in (
            ("perplexity", "code", nll, truth[number][0], "perplexity"),
            ("passkey", "single", right, truth[number][1], "accuracy"),
        ):
            cells.append(
                Answered(
                    f"m{number}", True, 0, benchmark, task, 512, scores, value, unit=unit,
                    exact_attention=exact,
                )
            )  # fmt: skip
    path = written(tmp_path / "catalog.duckdb", cells)
    for which, kept in (("all", truth.values()), ("exact attention", [*truth.values()][:6])):
        (row,) = ask(path, f"FROM perplexity_agreement WHERE methods = '{which}'")
        losses, shares, _ = zip(*kept, strict=True)
        negated = [-one for one in losses]
        assert row["num_methods"] == len(losses)
        assert row["spearman"] == pytest.approx(stats.spearmanr(negated, shares).statistic)
        assert row["kendall"] == pytest.approx(stats.kendalltau(negated, shares).statistic)
        assert row["kendall_low"] < row["kendall"] < row["kendall_high"]
    points = ask(path, "FROM perplexity_vs_downstream ORDER BY method")
    shown = {(p["perplexity"], p["value"], p["exact_attention"]) for p in points}
    assert shown == set(truth.values())


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (2.0, "mean"),
        (math.exp(2.0), "power of mean"),
        ((math.e + math.exp(3)) / 2, "mean of powers"),
        (2.1, None),
        (math.inf, None),
    ],
)
def test_what_a_number_is_of_its_samples_is_seen_from_both(value: float, form: str | None) -> None:
    assert aggregation_of(np.array([1.0, 3.0]), value) == form


def test_comparisons_are_no_part_of_the_digest_and_two_builds_agree(tmp_path: Path) -> None:
    one, other = (written(tmp_path / f"{n}.duckdb", passkeys()) for n in "ab")
    assert logical_digest(one) == logical_digest(other)
    assert ask(one, "FROM paired_difference") == ask(other, "FROM paired_difference")
    tables = ask(one, "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'store'")
    assert not {"paired_difference", "effective_length"} & {row["table_name"] for row in tables}
