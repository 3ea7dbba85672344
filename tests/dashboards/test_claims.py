"""Claims say only what the statistical tests of the catalog support.

Every number of a sentence is looked up in the views, every "is better than" in the verdicts.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from catalog.queries import open_catalog
from dashboards.claims import Claim, claims, counted, expectations
from dashboards.claims.printing import printed_claims
from dashboards.claims.wording import registered as in_words
from lce_core.errors import SpecError
from tests.catalog.test_catalog import ask
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


def one(found: list[Claim], first: str, other: str, benchmark: str, length: int = 512) -> Claim:
    (claim,) = (
        c for c in found
        if c.topic in ("base", "pair") and c.benchmark == benchmark and c.eval_length == length
        and {(c.method, c.frozen), (c.other_method, c.other_frozen)}
        == {(name.removesuffix(" tuned"), not name.endswith(" tuned")) for name in (first, other)}
    )  # fmt: skip
    return claim


def test_every_pair_is_claimed_once_and_better_only_if_the_verdict_is_better(catalog, found):
    pairs = [claim for claim in found if claim.topic in ("base", "pair")]
    assert len(pairs) == 4 * 15
    axes = ("benchmark", "eval_length", "method", "frozen", "other_method", "other_frozen")
    rows = ask(catalog, "FROM paired_difference")
    keyed = {tuple(row[axis] for axis in axes): row for row in rows}
    assert len(keyed) == len(rows)
    for claim in pairs:
        row = keyed[tuple(getattr(claim, axis) for axis in axes)]
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
        f", yarn tuned is better than yarn: its perplexity is lower by {gap}"
        f" [{low} to {high}], mean over 2 training seeds and 20 independent samples;"
        f" p = {claim.p_adjusted:.3f}"
    )
    assert 0 < float(low) < float(gap) < float(high)


def test_an_undecided_comparison_states_the_detectable_difference(found):
    claim = one(found, "lm_infinite", "none", "passkey")
    gap, low, high = (f"{x:.2f}" for x in (claim.difference, claim.low, claim.high))
    assert claim.text.startswith("at 512 tokens (4 times the trained context), undecided between ")
    assert claim.text.endswith(
        f" higher by {gap} [{low} to {high}], mean over 2 training seeds and 120 independent"
        f" samples; q = {claim.p_adjusted:.3f}; smallest detectable difference:"
        f" {claim.smallest_detectable:.2f}; about {claim.num_needed} training seeds would"
        " decide (80 % power)"
    )
    same = one(found, "yarn tuned", "pi tuned", "passkey")
    # A detectable difference that is unknown is not stated.
    assert same.smallest_detectable is None
    assert same.text.endswith(" the same score on each of 120 independent samples")
    assert one(found, "yarn", "none", "passkey", 128).text.startswith("at 128 tokens, ")


def test_too_few_samples_are_stated_whatever_the_difference(tmp_path):
    expects = [compared(0, "YaRN is better.", TUNED_YARN, "perplexity", 512)]
    few = written(tmp_path / "c.duckdb", [*cells(seeds=(0,), windows=2)], expects=expects)
    (entry,) = entries(few)
    assert entry.comparisons[0].outcome == "too few"
    assert entry.summary == "0 of 1 confirmed, 1 undecided"
    text = one(claimed(few), "yarn tuned", "none", "perplexity").text
    assert re.search(r" 2 independent samples are too few to compare .* lower by \d\.\d\d", text)


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
    assert of_seeds.verdict in ("undecided", "too few")
    of_prompts = claim("one.duckdb", [cell for cell in uneven if cell.seed == 0])
    assert of_prompts.verdict == "better"
    assert " better than the untuned base model on this one training run: " in of_prompts.text
    assert " mean over 60 independent samples" in of_prompts.text


def entries(catalog: Path) -> list[Any]:
    with open_catalog(catalog) as connection:
        return expectations(connection, "s")


def test_each_comparison_of_an_expectation_has_its_outcome_and_its_numbers(catalog):
    loss, passkeys, absent = entries(catalog)
    shown = ask(catalog, "FROM expectations WHERE entry IS NOT NULL")
    assert (loss.base_model, loss.text) == ("toy_llama", "Tuned YaRN has the lower perplexity.")
    found = [c for entry in (loss, passkeys, absent) for c in entry.comparisons]
    assert [c.outcome for c in found] == [row["outcome"] for row in shown]
    for comparison, row in zip(found[:5], shown, strict=False):
        assert f": {row['difference'] + 0.0:+.3f}" in comparison.finding
    assert absent.comparisons[0].text == (
        "not measured: at 2,048 tokens (16 times the trained context), yarn minus lm_infinite in"
        " score on many_shot"
    )
    assert counted([absent]) == "0 of 1 confirmed, 1 not measured"


def printed(
    catalog: Path, study: str | None = "s", *, everything=False, as_json=False, **chosen: Any
) -> str:
    return printed_claims(catalog, study, chosen, everything=everything, as_json=as_json)


def test_the_command_counts_published_claims_over_all_studies(tmp_path):
    claim = {"entry": 9, "text": "t", "claim": "LCEG: perplexity predicts", "expected": "predicts",
             "base_model": "toy_llama", "benchmark": "passkey", "eval_length": 512}  # fmt: skip
    expects = [EXPECTS[0] | {"claim": "LCEG: tuned methods work"}, *EXPECTS[1:], claim]
    path = written(tmp_path / "c.duckdb", [*cells()], expects=expects)
    shown = printed(path, None).splitlines()
    assert shown[::2] == ["LCEG: perplexity predicts", "LCEG: tuned methods work"]
    assert shown[1].startswith("  s (toy_llama): ")
    found = json.loads(printed(path, None, as_json=True))
    assert [row["num_comparisons"] for row in found] == [1, 1]


def test_an_expectation_that_is_late_withdrawn_or_behind_an_undecided_one_says_so(tmp_path):
    equal = compared(0, "Equal.", TUNED_YARN, "perplexity", 512, other=TUNED_PI)
    before = [
        compared(0, "Gone.", TUNED_YARN, "perplexity", 512), equal | {"entry": 1},
        EXPECTS[3] | {"entry": 2},
    ]  # fmt: skip
    new = compared(3, "New.", TUNED_PI, "passkey", 512)
    # A length that was added later leaves the entry's other comparisons as they are.
    after = [equal, equal | {"eval_length": 1024}, EXPECTS[3], new]
    registered = registrations((0, before), (7, after))
    path = written(tmp_path / "c.duckdb", [*cells()], expects=after, registered=registered)
    listed = entries(path)
    assert ["added" in one.summary for one in listed if one.text == "Equal."] == [False, True]
    found = {one.text: one.summary for one in listed[::-1]}
    assert "added" not in found["Equal."]
    # The number is that of today's study file, not of the registered one.
    blocked = "; not tested, because expectation 1 is undecided"
    assert found["YaRN loses passkeys."].endswith(blocked)
    claim = one(claimed(path), "yarn tuned", "none", "passkey")
    assert claim.text.endswith(blocked)
    assert found["New."].endswith("; added after 7 results, so exploratory")
    assert found["Gone."].endswith("; withdrawn after 7 results")
    assert in_words(ask(path, "FROM registrations")) == (
        "Registered 2026-01-02 00:00 UTC before the first result (sha256 1)."
        " Changed 2026-01-03 00:00 UTC after 7 results (sha256 2)."
    )


def test_the_command_prints_the_claims_in_lines_of_eighty_columns(catalog, found):
    shown = printed(catalog)
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "Recommended: " in shown
    assert "\nRule: " in shown
    everything = printed(catalog, everything=True)
    assert len(shown.splitlines()) < 40 < len(everything.splitlines())
    only = json.loads(printed(catalog, method="pi", as_json=True))
    assert [one["text"] for one in only] == [c.text for c in found if c.mentions("pi")]
    with pytest.raises(SpecError, match="yarn"):
        printed(catalog, method="yam")


def test_options_select_claims_of_a_pair_benchmark_and_length(catalog, found):
    place = {"against": "none", "benchmark": "perplexity", "length": 512}
    claim = one(found, "yarn tuned", "none", "perplexity")
    for tuned in ("yarn tuned", "yarn-tuned"):
        shown = printed(catalog, method=tuned, **place)
        assert f"- {claim.text}" == " ".join(shown.split())
    shown = printed(catalog, method="yarn")
    of_yarn = [c for c in found if c.mentions("yarn")]
    assert shown.count("\n  - ") + shown.startswith("  - ") == 10 < len(of_yarn)
    assert f"and {len(of_yarn) - 10} more: --method, --against" in shown
    with pytest.raises(SpecError, match="512"):
        printed(catalog, length=7)
