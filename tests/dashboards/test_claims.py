"""Claims say only what the statistical tests of the catalog support.

Every number of a sentence is looked up in the views, every "is better than" in the verdicts.
"""

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from catalog.queries import open_catalog
from dashboards.claims import Claim, claims, counted, expectations, headline
from dashboards.claims.__main__ import main
from dashboards.registered import registered as in_words
from lce_core.errors import SpecError
from tests.support.catalogs.answered_catalog import Answered, registrations, written
from tests.support.catalogs.sample_store import compared

YARN, TUNED_YARN, TUNED_PI = ("yarn", True), ("yarn", False), ("pi", False)
_LOSS = "Tuned YaRN has the lower perplexity."
EXPECTS = [
    compared(0, _LOSS, TUNED_YARN, "perplexity", 512),
    compared(0, _LOSS, TUNED_YARN, "perplexity", 512, other=YARN),
    compared(0, _LOSS, TUNED_YARN, "perplexity", 512, other=TUNED_PI),
    compared(1, "YaRN loses passkeys.", TUNED_YARN, "passkey", 512, "worse"),
    compared(1, "YaRN loses passkeys.", YARN, "passkey", 512, "worse", TUNED_PI),
    compared(2, "Nobody asked.", YARN, "many_shot", 2048, other=("lm_infinite", True)),
]
SEEDS, PROMPTS, WINDOWS = (0, 1), 60, 20
LOSS = {
    ("none", True): 2.0, ("lm_infinite", True): 1.5, ("yarn", True): 1.7,
    ("yarn", False): 1.4, ("pi", False): 1.4, ("dynamic_yarn", True): 1.7,
}  # fmt: skip
FOUND = {
    ("none", True): 0.1, ("lm_infinite", True): 0.15, ("yarn", True): 0.7,
    ("yarn", False): 1.0, ("pi", False): 1.0, ("dynamic_yarn", True): 0.72,
}  # fmt: skip


def cells(*, seeds: tuple[int, ...] = SEEDS, windows: int = WINDOWS) -> Iterator[Answered]:
    rng = np.random.default_rng(5)
    hard, drawn = rng.normal(0.0, 0.3, WINDOWS), rng.random((2, PROMPTS))
    for (method, frozen), level in LOSS.items():
        exact = method != "lm_infinite"
        # Methods with equal loss get equal noise, so that they score the same on every window.
        own = np.random.default_rng(int(100 * level))
        for seed in seeds:
            nll = (level + hard + own.normal(0.0, 0.02, WINDOWS))[:windows]
            names = [str(number) for number in range(windows)]
            for length in (128, 512):
                yield Answered(
                    method, frozen, seed, "perplexity", "code", length, nll,
                    float(np.exp(nll.mean())), names, seeded=False, unit="perplexity",
                    exact_attention=exact,
                )  # fmt: skip
                right = drawn[seed] < (FOUND[method, frozen] if length > 128 else 0.9)
                share = float(right.mean())
                yield Answered(
                    method, frozen, seed, "passkey", "single", length, right.astype(float), share,
                    exact_attention=exact,
                )  # fmt: skip


@pytest.fixture(scope="module")
def catalog(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("claimed") / "catalog.duckdb"
    return written(path, [*cells()], expects=EXPECTS)


@pytest.fixture(scope="module")
def found(catalog) -> list[Claim]:
    return claimed(catalog)


def claimed(catalog: Path) -> list[Claim]:
    with open_catalog(catalog) as connection:
        return claims(connection, "s")


def rows(catalog: Path, sql: str) -> list[dict[str, Any]]:
    with open_catalog(catalog) as connection:
        asked = connection.execute(sql)
        names = [column[0] for column in asked.description]
        return [dict(zip(names, row, strict=True)) for row in asked.fetchall()]


def one(found: list[Claim], first: str, other: str, benchmark: str, length: int = 512) -> Claim:
    (claim,) = (
        c for c in found
        if c.topic in ("base", "pair") and c.benchmark == benchmark and c.eval_length == length
        and {(c.method, c.frozen), (c.other_method, c.other_frozen)}
        == {(name.removesuffix(" tuned"), not name.endswith(" tuned")) for name in (first, other)}
    )  # fmt: skip
    return claim


def best_of(found: list[Claim], benchmark: str) -> Claim:
    (claim,) = (
        c for c in found if (c.topic, c.benchmark, c.eval_length) == ("best", benchmark, 512)
    )
    return claim


def test_every_pair_is_claimed_once_and_better_only_if_the_verdict_is_better(catalog, found):
    pairs = [claim for claim in found if claim.topic in ("base", "pair")]
    assert len(pairs) == 4 * 15
    for claim in pairs:
        (row,) = rows(
            catalog,
            f"FROM paired_difference WHERE benchmark = '{claim.benchmark}'"
            f" AND eval_length = {claim.eval_length} AND method = '{claim.method}'"
            f" AND frozen = {claim.frozen} AND other_method = '{claim.other_method}'"
            f" AND other_frozen = {claim.other_frozen}",
        )
        shown = ("difference", "p_adjusted", "smallest_detectable", "num_seeds", "verdict")
        assert [getattr(claim, name) for name in shown] == [row[name] for name in shown]
        assert (claim.low, claim.high) == (row["ci_low"], row["ci_high"])
        is_better = " is better than " in claim.text
        assert is_better == (row["verdict"] == "better")
        assert claim.text.isascii()


def test_a_significant_difference_is_stated_with_its_numbers(found):
    claim = one(found, "yarn tuned", "yarn", "perplexity")
    gap, low, high = (f"{abs(x):.2f}" for x in (claim.difference, claim.high, claim.low))
    assert claim.text.endswith(
        f"yarn tuned is better than yarn: its perplexity is lower by {gap} [{low} to {high}], mean"
        " over 2 training seeds and 20 independent samples; p_Holm < 0.001"
    )
    assert 0 < float(low) < float(gap) < float(high)


def test_without_a_significant_difference_the_detectable_one_is_stated(found):
    claim = one(found, "lm_infinite", "none", "passkey")
    gap, low, high = (f"{x:.2f}" for x in (claim.difference, claim.low, claim.high))
    assert claim.text.startswith("at 512 tokens (4 times the trained context), no significant ")
    assert claim.text.endswith(
        f" higher by {gap} [{low} to {high}], mean over 2 training seeds and 120 independent"
        f" samples; p_Holm = {claim.p_adjusted:.2f}; smallest detectable difference:"
        f" {claim.smallest_detectable:.3f}; about {claim.num_needed} training seeds would show this"
        " difference (80 % power)"
    )
    same = one(found, "yarn tuned", "pi tuned", "passkey")
    assert same.text.endswith(
        " the same score on each of 120 independent samples; smallest detectable difference:"
        f" {same.smallest_detectable:.2f}"
    )
    assert one(found, "yarn", "none", "passkey", 128).text.startswith("at 128 tokens, ")


def test_too_few_samples_are_stated_whatever_the_difference(tmp_path):
    comparison = compared(0, "YaRN is better.", TUNED_YARN, "perplexity", 512)
    few = tmp_path / "catalog.duckdb"
    (entry,) = expected(few, cells(seeds=(0,), windows=3), comparison)
    assert entry.comparisons[0].outcome == "undecided"
    claim = one(claimed(few), "yarn tuned", "none", "perplexity")
    assert entry.comparisons[0].finding.lower() == claim.text.lower()
    assert re.search(
        r" 3 independent samples are too few to compare .* lower by \d\.\d\d; about \d+ independent"
        r" samples would show",
        claim.text,
    )


def test_prompts_of_one_training_run_show_a_difference_of_these_checkpoints_only(tmp_path):
    """Both runs of a method differ from the base model, but too unevenly to expect a third to."""
    uneven = [
        replace(cell, scores=[1.0] * right + [0.0] * (PROMPTS - right), value=right / PROMPTS)
        if (cell.method, cell.frozen, cell.benchmark) == ("yarn", False, "passkey")
        and (right := (60, 25)[cell.seed])
        else cell
        for cell in cells()
    ]

    def claim(name: str, cells: list[Answered]) -> Claim:
        return one(claimed(written(tmp_path / name, cells)), "yarn tuned", "none", "passkey")

    of_seeds = claim("seeds.duckdb", uneven)
    assert of_seeds.verdict == "no difference found"
    assert " mean over 2 training seeds and 120 " in of_seeds.text
    of_prompts = claim("one.duckdb", [cell for cell in uneven if cell.seed == 0])
    assert of_prompts.verdict == "better"
    assert " better than the untuned base model on these checkpoints: " in of_prompts.text
    assert " mean over 60 independent samples" in of_prompts.text


def test_with_several_base_models_each_sentence_names_its_own():
    first = Claim("best", "better", "at 512 tokens, yarn is best", "llama", "passkey", 512,
                  method="yarn", frozen=True, num_samples=20, at_target=True)  # fmt: skip
    other = replace(first, base_model="phi")
    assert headline([first]) == [first]
    assert [claim.sentence for claim in headline([first, other])] == [
        "With llama, at 512 tokens, yarn is best.",
        "With phi, at 512 tokens, yarn is best.",
    ]


def test_the_best_method_is_compared_with_all_others(catalog, found):
    best = best_of(found, "perplexity")
    assert best.text.endswith(
        f" ({best.value:.2f}) of 6 methods, the same as yarn tuned on every sample: better than"
        " dynamic_yarn, lm_infinite, the untuned base model and yarn"
    )
    losses = {c.value for c in found if (c.topic, c.benchmark) == ("pair", "perplexity")}
    assert best.value <= min(losses)
    (base,) = (
        c for c in found
        if c.topic == "length" and c.mentions("none") and c.benchmark == "passkey"
    )  # fmt: skip
    assert re.search(r" 128 tokens \[128 to 128\]: .* at least 0\.8\d .* up to 512 ", base.text)


def test_a_method_better_than_all_others_states_the_closest_and_the_margin(tmp_path):
    apart = [cell for cell in cells() if (cell.method, cell.frozen) != ("pi", False)]
    catalog = written(tmp_path / "catalog.duckdb", apart)
    best = best_of(claimed(catalog), "perplexity")
    (gap,) = rows(
        catalog,
        "FROM paired_difference WHERE benchmark = 'perplexity' AND eval_length = 512"
        " AND method = 'yarn' AND NOT frozen ORDER BY abs(difference) LIMIT 1",
    )
    by, low, high = (abs(gap[name]) for name in ("difference", "ci_high", "ci_low"))
    assert gap["other_method"] == "lm_infinite"
    assert best.text.endswith(
        f" of 5 methods: better than all others; lower by {by:.2f} [{low:.2f} to {high:.2f}] than"
        " the closest, lm_infinite, mean over 2 training seeds and 20 independent samples; p_Holm ="
        f" {gap['p_adjusted']:.3f}"
    )
    two = [cell for cell in apart if cell.method in ("none", "lm_infinite")]
    best = best_of(claimed(written(tmp_path / "two.duckdb", two)), "perplexity")
    assert re.search(r": better than the untuned base model; lower by [12]\.", best.text)


@pytest.mark.parametrize(
    ("right", "sentence"),
    [
        ({"none": 0.0, "pi": 0.0, "yarn": 0.0},
         "all 3 methods have the same accuracy on passkey (0.00) on every sample"),
        ({"none": 0.0, **dict.fromkeys(("pi", "yarn", "ntk", "clex", "harpe", "rerope"), 1.0)},
         "6 of 7 methods have the highest accuracy on passkey (1.00): better than the untuned base"
         " model"),
    ],
    ids=["all equal", "many equal"],
)  # fmt: skip
def test_of_equal_methods_none_is_called_best_and_all_are_counted(tmp_path, right, sentence):
    cells = [
        Answered(method, True, 0, "passkey", "single", 512, [share] * 40, share)
        for method, share in right.items()
    ]
    found = claimed(written(tmp_path / "catalog.duckdb", cells))
    assert best_of(found, "passkey").text.endswith(sentence)


def test_a_method_with_an_equal_mean_is_named(tmp_path):
    turned = []
    for cell in cells(seeds=(0,)):
        if cell.benchmark == "passkey" and cell.frozen and cell.method in ("yarn", "none"):
            right = [1.0, 0.0, 0.0] if cell.method == "yarn" else [0.0, 1.0, 0.0]
            turned.append(replace(cell, scores=right, value=1 / 3))
    found = claimed(written(tmp_path / "catalog.duckdb", turned))
    assert re.search(
        r" \(0\.33\) of 2 methods, the same as (yarn|the untuned base model) on average: ",
        best_of(found, "passkey").text,
    )


def test_the_headline_has_perplexity_another_benchmark_and_their_correlation(found):
    chosen = headline(found)
    assert [(c.topic, c.benchmark, c.eval_length) for c in chosen] == [
        ("best", "perplexity", 512), ("best", "passkey", 512), ("order", "passkey", 512),
    ]  # fmt: skip
    assert all(claim.at_target for claim in chosen)


def expected(path: Path, cells: Iterable[Answered], *comparisons: dict[str, Any]) -> list[Any]:
    with open_catalog(written(path, [*cells], expects=comparisons)) as connection:
        return expectations(connection, "s")


def test_each_comparison_of_an_expectation_has_its_outcome_and_its_claim(catalog, found):
    with open_catalog(catalog) as connection:
        loss, passkeys, absent = expectations(connection, "s")
    assert (loss.base_model, loss.text) == ("toy_llama", "Tuned YaRN has the lower perplexity.")
    assert loss.summary == "2 of 3 confirmed, 1 undecided"
    assert loss.comparisons[0].text == (
        f"confirmed: {one(found, 'yarn tuned', 'none', 'perplexity').text}"
    )
    assert loss.comparisons[2].text == (
        f"undecided: {one(found, 'yarn tuned', 'pi tuned', 'perplexity').text}"
    )
    # The expectation has the wrong direction: YaRN finds more passkeys.
    assert passkeys.summary == "1 of 2 confirmed, 1 contradicted"
    assert [c.outcome for c in passkeys.comparisons] == ["contradicted", "confirmed"]
    assert " context), yarn tuned is better than " in passkeys.comparisons[0].finding
    assert absent.comparisons[0].text == (
        "not measured: at 2,048 tokens (16 times the trained context), yarn and lm_infinite on"
        " many_shot"
    )
    assert counted([loss, passkeys, absent]) == (
        "3 of 6 confirmed, 1 contradicted, 1 undecided, 1 not measured"
    )


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(monkeypatch, capsys) -> Command:
    """Run `lce claims` in this process; return its exit code, output and errors."""

    def run(catalog: Path, *options: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["claims", "--catalog", str(catalog), *options])
        return main(), *capsys.readouterr()

    return run


def test_the_command_counts_published_claims_over_all_studies(tmp_path, command):
    claim = {"entry": 9, "text": "t", "claim": "LCEG: perplexity predicts", "expected": "predicts",
             "base_model": "toy_llama", "benchmark": "passkey", "eval_length": 512}  # fmt: skip
    expects = [EXPECTS[0] | {"claim": "LCEG: tuned methods work"}, *EXPECTS[1:], claim]
    path = written(tmp_path / "c.duckdb", [*cells()], expects=expects)
    with open_catalog(path) as connection:
        order = expectations(connection, "s")[-1].comparisons[0]
        (sentence,) = (
            one.text for one in claims(connection, "s")
            if (one.topic, one.benchmark, one.eval_length) == ("order", "passkey", 512)
            and "exact" not in one.text
        )  # fmt: skip
    assert order.text == f"{order.outcome}: {sentence}"
    assert command(path)[1] == (
        "LCEG: perplexity predicts\n"
        f"  s (toy_llama): {int(order.outcome == 'confirmed')} of 1 confirmed"
        f"{', 1 undecided' * (order.outcome == 'undecided')}\n"
        "LCEG: tuned methods work\n"
        "  s (toy_llama): 1 of 1 confirmed\n"
    )
    found = json.loads(command(path, "--json")[1])
    assert [row["num_confirmed"] for row in found] == [int(order.outcome == "confirmed"), 1]


def test_an_expectation_that_was_added_after_results_says_so(tmp_path):
    registered = registrations((0, EXPECTS[:1]), (7, EXPECTS))
    path = written(tmp_path / "c.duckdb", [*cells()], expects=EXPECTS, registered=registered)
    with open_catalog(path) as connection:
        loss, passkeys, _ = expectations(connection, "s")
    assert "added" not in loss.summary.partition(";")[0]
    assert passkeys.summary.endswith("; added after 7 results, so exploratory")
    assert in_words(rows(path, "FROM registrations")) == (
        "Registered 2026-01-02 00:00 UTC before the first result (sha256 1)."
        " Changed 2026-01-03 00:00 UTC after 7 results (sha256 2)."
    )


def test_the_looks_of_a_registration_are_named_with_the_methods_that_they_settled():
    version = {"registered_at": datetime(2026, 1, 2), "results_before": 0, "sha256": "1"}
    settled = [{"method": "yarn", "frozen": False, "num_seeds": 3}]
    assert in_words([version | {"looks": [3, 6]}], settled).endswith(
        " 3 and 6 seeds (levels 0.0056, 0.044); settled: yarn tuned after 3 seeds."
    )


def test_an_expectation_is_about_the_mean_over_tasks(tmp_path):
    right = {("none", "a"): 20, ("yarn", "a"): 1, ("none", "b"): 0, ("yarn", "b"): 58}
    cells = [
        Answered(name, True, 0, "ruler", task, 512, [1.0] * n + [0.0] * (60 - n), n / 60)
        for (name, task), n in right.items()
    ]
    comparison = compared(0, "YaRN is better.", ("yarn", True), "ruler", 512)
    (entry,) = expected(tmp_path / "catalog.duckdb", cells, comparison)
    (only,) = entry.comparisons
    assert only.outcome == "confirmed"
    assert ": its accuracy on ruler (a, b) is higher by " in only.finding


def test_seeds_that_disagree_leave_an_expectation_undecided(tmp_path):
    changed = [
        replace(cell, scores=[0.0] * 57 + [1.0] * 3, value=0.05)
        if (cell.method, cell.frozen, cell.seed, cell.benchmark) == ("yarn", False, 1, "passkey")
        else cell
        for cell in cells()
    ]
    comparison = compared(0, "YaRN is better.", ("yarn", False), "passkey", 512)
    (entry,) = expected(tmp_path / "seeds.duckdb", changed, comparison)
    assert entry.comparisons[0].outcome == "undecided"
    assert re.search(r"; about [\d,]+ training seeds would show", entry.comparisons[0].finding)


def test_an_undecided_margin_says_how_many_samples_would_decide(tmp_path):
    comparison = compared(
        0, "YaRN loses little.", YARN, "perplexity", 512, "not worse", ("dynamic_yarn", True), 0.001
    )
    own = np.random.default_rng(1)
    changed = [
        replace(cell, scores=(nll := cell.scores + own.normal(0, 0.02, WINDOWS)),
                value=float(np.exp(nll.mean())))
        if (cell.method, cell.benchmark) == ("dynamic_yarn", "perplexity") else cell
        for cell in cells()
    ]  # fmt: skip
    (entry,) = expected(tmp_path / "c.duckdb", changed, comparison)
    assert entry.comparisons[0].outcome == "undecided"
    assert re.search(
        r"; expected not worse within 0.1 %: (about|more than) [\d,]+ (training seeds|independent"
        r" samples) would decide \(80 % power\)$",
        entry.comparisons[0].finding,
    )


def test_a_missing_study_and_an_older_catalog_raise_spec_errors(catalog, tmp_path):
    with open_catalog(catalog) as connection, pytest.raises(SpecError, match="study of the"):
        claims(connection, "t")
    older = tmp_path / "catalog.duckdb"
    shutil.copyfile(catalog, older)
    with duckdb.connect(str(older)) as connection:
        connection.execute("DROP VIEW effective_length")
    with pytest.raises(SpecError, match="lce rebuild catalog"):
        claimed(older)


def test_the_command_prints_the_claims_in_lines_of_eighty_columns(catalog, found, command):
    code, shown, _ = command(catalog, "--study", "s")
    assert code == 0
    assert all(len(line) <= 80 for line in shown.splitlines())
    text = " ".join(shown.split())
    for claim in headline(found):
        assert claim.text in text
    assert "Expected: 3 of 6 confirmed" in text
    everything = command(catalog, "--study", "s", "--all")[1]
    assert len(shown.splitlines()) < 40 < len(everything.splitlines())
    only = json.loads(command(catalog, "--study", "s", "--method", "pi", "--json")[1])
    assert [one["text"] for one in only] == [c.text for c in found if c.mentions("pi")]
    code, shown, error = command(catalog, "--study", "s", "--method", "yam")
    assert (code, shown) == (2, "")
    assert "yarn" in error


def test_options_select_claims_of_a_pair_benchmark_and_length(catalog, found, command):
    place = ("--study", "s", "--against", "none", "--benchmark", "perplexity", "--length", "512")
    claim = one(found, "yarn tuned", "none", "perplexity")
    for tuned in ("yarn tuned", "yarn-tuned"):
        shown = command(catalog, "--method", tuned, *place)[1]
        assert f"- {claim.text}" == " ".join(shown.split())
    shown = command(catalog, "--study", "s", "--method", "yarn")[1]
    of_yarn = [c for c in found if c.mentions("yarn")]
    assert shown.count("\n  - ") + shown.startswith("  - ") == 10 < len(of_yarn)
    assert f"and {len(of_yarn) - 10} more: --method, --against" in shown
    code, shown, error = command(catalog, "--study", "s", "--length", "7")
    assert (code, shown) == (2, "")
    assert "512" in error
