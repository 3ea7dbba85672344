"""The first screen: what came out, which method to use, and what to distrust."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from catalog.queries import open_catalog
from dashboards.claims.summary import Summary, summaries
from dashboards.contents import Contents
from dashboards.families import Variant
from dashboards.markdown import write_markdown
from dashboards.report import report_page
from tests.support.catalogs.answered_catalog import Answered, registrations, written
from tests.support.catalogs.sample_store import compared

TEXTS, PROMPTS = 20, 60
LOSS = {"none": 2.0, "yarn": 1.4, "ntk": 1.4, "lm_infinite": 1.3, "pi": 1.6}
FOUND = {"none": 0.1, "yarn": 1.0, "ntk": 1.0, "lm_infinite": 0.1, "pi": 0.6}
EXPECTS = [
    compared(0, "YaRN finds more.", ("yarn", True), "passkey", 256) | {"claim": None},
    compared(1, "PI loses.", ("pi", True), "passkey", 256, other=("yarn", True))
    | {"claim": "YaRN beats PI"},
    compared(2, "PI predicts better.", ("pi", True), "perplexity", 256) | {"claim": None},
]


def cells() -> Iterator[Answered]:
    rng = np.random.default_rng(5)
    hard, drawn = rng.normal(0.0, 0.3, TEXTS), rng.random(PROMPTS)
    for method, level in LOSS.items():
        noise = np.random.default_rng(int(100 * level)).normal(0.0, 0.02, TEXTS)
        nll = level + hard + noise
        for length in (256, 512):
            yield Answered(
                method, True, 0, "perplexity", "code", length, nll, float(np.exp(nll.mean())),
                [str(number) for number in range(TEXTS)], seeded=False, unit="perplexity",
            )  # fmt: skip
            right = (drawn < FOUND[method]).astype(float)
            yield Answered(method, True, 0, "passkey", "single", length, right, float(right.mean()))


def summary(path: Path, cells: list[Answered], expects=EXPECTS, **more) -> Summary:
    more.setdefault("registered", registrations((0, expects)))
    with open_catalog(written(path, cells, expects=expects, **more)) as connection:
        (only,) = summaries(connection, "s")
    return only


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Summary:
    return summary(tmp_path_factory.mktemp("summary") / "c.duckdb", [*cells()])


def test_the_hypothesis_and_published_claims_are_counted_apart(made):
    assert [sentence for sentence, _ in made.outcomes()] == [
        "Hypothesis: 2 of 2 confirmed.",
        "1 published claim: 0 of 1 confirmed, 1 contradicted.",
    ]


def test_late_entries_are_counted_apart(tmp_path):
    registered = registrations((0, EXPECTS[:2]), (4, EXPECTS))
    found = summary(tmp_path / "c.duckdb", [*cells()], registered=registered)
    sentences = [sentence for sentence, _ in found.outcomes()]
    assert sentences[0] == "Hypothesis: 1 of 1 confirmed."
    assert sentences[-1].startswith("Not registered before the first result, so exploratory: ")


def test_benchmarks_are_those_of_the_hypothesis_in_its_order(made):
    assert made.benchmarks == ["passkey", "perplexity"]
    assert made.lengths == [256, 512]


def test_the_recommended_method_is_never_beaten_and_the_best_on_the_first_benchmark(made):
    """LM-Infinite has the lower perplexity but finds no passkeys, so it is beaten on one."""
    choice = made.choices[0]
    assert (choice.eval_length, choice.benchmark) == (256, "passkey")
    beaten = {
        (row["method"], row["benchmark"])
        for row in made.rows.pairs
        if row["verdict"] == "worse" and row["eval_length"] == 256
    }
    numbers = {name: sum(one == name for one, _ in beaten) for name in LOSS}
    fewest = min(numbers.values())
    candidates = [name for name in LOSS if numbers[name] == fewest]
    best = max(FOUND[name] for name in candidates)
    assert FOUND[choice.method.method] == best
    assert choice.num_beaten == fewest
    assert {one.method for one in choice.unbeaten} == {n for n in LOSS if numbers[n] == 0}


def changed(made: Summary, **rows: list[dict[str, Any]]) -> Summary:
    return replace(made, rows=Contents(made.rows.study, {**made.rows.rows, **rows}))


def test_equal_scores_are_decided_by_training_cost(made):
    costs = [
        {"method": name, "frozen": True, "train_flops": flops, "train_seconds": 60.0}
        for name, flops in (("yarn", 2e12), ("ntk", 1e12))
    ]
    pairs = [
        row for row in made.rows.pairs if {row["method"], row["other_method"]} == {"yarn", "ntk"}
    ]
    means = [row for row in made.rows.means if row["method"] in ("yarn", "ntk")]
    found = changed(made, costs=costs, pairs=pairs, means=means)
    assert found.choices[0].method == Variant("ntk", True)
    assert "training of all its seeds: 60 s, 1.0e12 FLOPs" in " ".join(found.recommended())


def test_what_to_distrust_names_its_reasons(made):
    few = [row | {"num_clusters": 6, "generalises_to": "training seeds", "num_seeds": 3}
           for row in made.rows.pairs]  # fmt: skip
    same = [{"method": "yarn", "frozen": True, "other_method": "ntk", "other_frozen": True}]
    amendments = [{"results_before": 3, "change": "seed 2 dropped"}]
    status = [{"status": "failed", "number": 2}, {"status": "done", "number": 8}]
    text = " ".join(
        changed(made, pairs=few, duplicates=same, amendments=amendments, cells=status).distrust()
    )
    for reason in (
        "Only 3 training seeds", "yarn and ntk are the same computation",
        "Changed after 3 results: seed 2 dropped.", "Of 10 cells: 2 failed.",
        "Fewer than 10 independent documents or prompts: ",
    ):  # fmt: skip
        assert reason in text
    known = [
        row | {"explained_by": row["method"] == "yarn" and "no_context"} for row in made.rows.pairs
    ]
    cut = {"benchmark": "ruler", "tasks": "vt", "eval_length": 512, "problem": "3 lost the end"}
    text = " ".join(changed(made, pairs=known, checks=[cut]).distrust())
    better = [bool(row["explained_by"]) for row in known if row["verdict"] == "better"]
    assert f"{sum(better)} of {len(better)} significant differences may come from a" in text
    assert "yarn over none on passkey at 256 tokens (no_context)" in text
    assert "Inputs of ruler (vt) at 512 tokens: 3 lost the end." in text
    stuck = [row | {"value": 1.0} for row in made.rows.means if row["benchmark"] == "passkey"]
    assert "5 of 5 methods" in " ".join(changed(made, means=stuck).distrust())
    one_run = [row | {"generalises_to": "one training run"} for row in made.rows.pairs]
    assert "rest on one training run" in next(changed(made, pairs=one_run).distrust())


def test_report_and_markdown_begin_with_the_same_sentences(tmp_path):
    path = tmp_path / "c.duckdb"
    made = summary(path, [*cells()])
    first, _, folded = report_page(path, "s").partition("</header>")
    text = write_markdown(path, "s", tmp_path / "md").read_text()
    for sentence in (*(one for one, _ in made.outcomes()), made.total_cost()):
        assert sentence in first
        assert sentence in text
    for part in ("Which method", "What to distrust", "never significantly beaten", "Rule: "):
        assert part in first
        assert part in text
    assert "a gain beyond it (passkey, perplexity: no length within the trained context)" in first
    assert first.count('class="mark dot') == 4 * len(LOSS)
    assert folded.count("<section") == folded.count('<details class="part">')
