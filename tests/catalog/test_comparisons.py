"""What the catalog says of two methods is what the same answers say to other code.

Strategy: made-up answers in real DuckDB catalogs; differences, intervals and p-values are computed
again with scipy and numpy alone; rules of comparability are tried with one cell changed.
"""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from catalog.comparisons.samples import aggregation_of
from catalog.queries import open_catalog
from dashboards.claims.summary import summaries
from dashboards.contents import read_contents
from dashboards.markdown import write_markdown
from dashboards.report import report_page
from lce_core.formats import score
from lce_core.statistics.contrasts import Contrast
from lce_core.statistics.power import mean_power
from tests.catalog.test_catalog import ask
from tests.support.catalogs.answered_catalog import TRAINED, Answered, registrations, written
from tests.support.digests import catalog_digest

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
            cells.append(passkey(method, length, (drawn < share).astype(float), frozen, seed))
    return cells


def passkey(
    method: str, length: int, right: Any, frozen: bool = True, seed: int = 0, **changes: Any
) -> Answered:
    """A cell with these scores, or with a share of 200 right answers."""
    if isinstance(right, float):
        right = [1.0] * round(200 * right) + [0.0] * round(200 * (1 - right))
    value = float(np.mean(right)) if len(right) else 0.0
    return Answered(
        method, frozen, seed, "passkey", "single", length, right, **{"value": value, **changes}
    )


@pytest.fixture(scope="module")
def catalog(tmp_path_factory) -> Path:
    cells = [*losses(), *passkeys(), *passkeys(128)]
    return written(tmp_path_factory.mktemp("compared") / "catalog.duckdb", cells)


def pair(catalog: Path, first: str, second: str, where: str) -> dict[str, Any]:
    (row,) = ask(
        catalog,
        f"FROM paired_difference WHERE method = '{first}' AND other_method = '{second}'"
        f" AND {where}",
    )
    return row


def expected(method: str, other: str = "none", **changes: Any) -> dict[str, Any]:
    """A tuned method is expected to beat another, of which only `none` is frozen."""
    return {
        "entry": 0, "text": f"{method} wins.", "base_model": "toy_llama", "method": method,
        "frozen": False, "expected": "better", "margin": None, "other_method": other,
        "other_frozen": other == "none", "benchmark": "passkey", "eval_length": 512, **changes,
    }  # fmt: skip


def scores_of(method: str, task: str, cells: list[Answered]) -> np.ndarray:
    """(seeds, prompts)."""
    return np.array([cell.scores for cell in cells if (cell.method, cell.task) == (method, task)])


def of_windows(gaps: np.ndarray) -> float:
    """Variance that windows add to a mean over seeds and windows."""
    left = gaps - gaps.mean(axis=1, keepdims=True) - gaps.mean(axis=0) + gaps.mean()
    square_left = (left**2).sum() / (2 * (WINDOWS - 1))
    return max(0, 3 * gaps.mean(axis=0).var(ddof=1) - square_left) / gaps.size


def half_width(alpha: float, freedom: int, of_seeds: float, gaps: np.ndarray) -> float:
    return math.hypot(
        stats.t.ppf(1 - alpha / 2, freedom) * math.sqrt(of_seeds),
        stats.t.ppf(1 - alpha / 2, WINDOWS - 1) * math.sqrt(of_windows(gaps)),
    )


def test_perplexities_are_compared_by_their_means_over_seeds_and_tasks(catalog):
    row = pair(catalog, "yarn", "pi", "benchmark = 'perplexity'")
    cells = losses()
    ours, theirs = ([scores_of(name, task, cells) for task in TASKS] for name in ("yarn", "pi"))

    def mean(tasks: list[np.ndarray]) -> float:
        return float(np.exp(np.mean(tasks)))  # geometric: seeds change a perplexity by a factor

    assert row["value"] == pytest.approx(mean(ours))
    assert row["difference"] == pytest.approx(mean(ours) - mean(theirs))
    seeds = [
        mean([one[seed] for one in ours]) - mean([one[seed] for one in theirs]) for seed in SEEDS
    ]
    assert (row["lowest"], row["highest"]) == pytest.approx((min(seeds), max(seeds)))
    counts = (row["num_clusters"], row["num_samples"], row["num_seeds"], row["tasks"])
    assert counts == (48, 144, 3, "code, prose")
    assert row["verdict"] == "better"
    assert row["task"] is None


def test_one_training_run_is_compared_over_prompts_by_mcnemars_test(tmp_path):
    cells = [replace(cell, result=f"{cell.method}-{cell.seed}") for cell in passkeys()]
    frozen = [replace(cell, extra={"checkpoint": "pretrained"}) for cell in cells]
    row = pair(written(tmp_path / "catalog.duckdb", frozen), "pi", "none", "true")
    ours = scores_of("pi", "single", passkeys())
    theirs = scores_of("none", "single", passkeys())
    wins, defeats = int((ours > theirs).sum()), int((ours < theirs).sum())
    assert (row["num_better"], row["num_worse"]) == (wins, defeats)
    assert (row["num_clusters"], row["num_samples"]) == (120, 120)  # each seed draws 40 prompts
    assert (row["generalises_to"], row["num_seeds"]) == ("one training run", 1)
    assert row["p_value"] == pytest.approx(stats.binomtest(wins, wins + defeats).pvalue, rel=0.5)
    gaps = (ours - theirs).ravel()
    low, high = stats.t.interval(0.95, 119, gaps.mean(), stats.sem(gaps))  # exploratory: alone
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((low, high), abs=0.03)


def test_a_control_explains_what_a_method_gains_without_the_context(tmp_path):
    """A method that guesses from the question gains nothing; one that reads does, by McNemar."""
    drawn = np.random.default_rng(3).random(120)

    def cell(method: str, known: float, read: float, local: float) -> Answered:
        """The method knows a share of the answers, and finds more in the text or its sentence."""
        right, bare, near = ((drawn < share).astype(float) for share in (read, known, local))
        return passkey(method, 512, right, controls={"no_context": bare, "local_context": near})

    cells = [
        cell("none", 0.1, 0.2, 0.9), cell("yarn", 0.1, 0.7, 0.9), cell("pi", 0.6, 0.7, 0.9),
        cell("ntk", 0.5, 0.6, 0.95), cell("longrope", 0.1, 0.6, 0.4),
    ]  # fmt: skip
    catalog = written(tmp_path / "c.duckdb", cells)
    rows = ask(catalog, "FROM paired_difference WHERE other_method IN ('none', 'longrope')")
    found = {(row["method"], row["other_method"]): row for row in rows}
    explained = {pair: row["explained_by"] for pair, row in found.items()}
    assert explained["yarn", "none"] is None
    assert explained["pi", "none"] == explained["ntk", "none"] == "no_context"
    # Better by 0.1 on the prompts and by 0.5 on the sentence alone; the base model only on that.
    assert explained["yarn", "longrope"] == "local_context"
    assert explained["longrope", "none"] is None

    def scores(method: str) -> dict[str, Any]:
        (one,) = [one for one in cells if one.method == method]
        return {"all": np.array(one.scores), **one.controls}

    for method, other in (("pi", "none"), ("yarn", "none")):
        ours, theirs = scores(method), scores(other)
        bare = ours["no_context"] - theirs["no_context"]
        beyond = ours["all"] - theirs["all"] - bare
        differs = bool(bare.any()) and stats.ttest_1samp(bare, 0).pvalue <= 0.05
        remains = bool(beyond.any()) and stats.ttest_1samp(beyond, 0).pvalue <= 0.05
        assert not remains or beyond.mean() > 0
        assert (explained[method, other] is not None) == (differs and not remains)

    shown, rows = report_page(catalog, "s"), read_contents(catalog, "s").controls
    assert len(rows) == len(cells)
    page = write_markdown(catalog, "s", tmp_path / "page").read_text(encoding="utf-8")
    for row in rows:
        means = {name: float(values.mean()) for name, values in scores(row["method"]).items()}
        assert (row["score"], row["no_context"], row["local_context"]) == tuple(means.values())
        assert all(f'data-value="{mean!r}"' in shown for mean in means.values())
        numbers = " | ".join(map(score, means.values()))
        assert re.search(rf"\| {row['method']} \| .* \| {re.escape(numbers)} \|\n", page)


def test_more_prompts_of_a_document_add_no_evidence(tmp_path):
    rows = []
    for copies in (2, 8):
        cells = [
            replace(
                cell,
                scores=np.repeat(cell.scores[:20], copies),
                value=float(np.mean(cell.scores[:20])),
                clusters=[f"document {number}" for number in np.repeat(np.arange(20), copies)],
                extra={"checkpoint": "pretrained"},
            )
            for cell in passkeys()
            if cell.seed == 0
        ]
        built = written(tmp_path / f"{copies}.duckdb", cells)
        rows.append(pair(built, "pi", "none", "true"))
    for column in ("p_value", "ci_low", "ci_high", "smallest_detectable"):
        assert rows[0][column] == pytest.approx(rows[1][column])
    assert rows[0]["num_clusters"] == 20
    assert rows[0]["smallest_detectable"] < 0.6


def test_more_wordings_of_a_prompt_add_no_evidence(tmp_path):
    rows = []
    for number in (2, 3):
        cells = [
            replace(cell, task=task, extra={"checkpoint": "pretrained"})
            for cell in passkeys()
            for task in ("single", "wording_1", "wording_2")[:number]
        ]
        built = written(tmp_path / f"{number}.duckdb", cells)
        rows.append(pair(built, "pi", "none", "task IS NULL"))
    for column in ("p_value", "ci_low", "ci_high", "smallest_detectable"):
        assert rows[0][column] == pytest.approx(rows[1][column])
    assert rows[0]["num_clusters"] == rows[1]["num_clusters"] == 3 * PROMPTS


def test_a_difference_over_training_seeds_gets_the_paired_t_test_of_its_two_methods(catalog):
    row = pair(catalog, "yarn", "pi", "benchmark = 'passkey' AND eval_length = 512")
    ours, theirs = (scores_of(name, "single", passkeys()).mean(axis=1) for name in ("yarn", "pi"))
    gaps = ours - theirs
    # Each seed has 40 prompts of its own, and seeds differ at least as much as prompts make them.
    wins = scores_of("yarn", "single", passkeys()) - scores_of("pi", "single", passkeys())
    number, discordant = wins.size + 2, np.abs(wins).sum() + 1
    of_prompts = math.sqrt(discordant - wins.sum() ** 2 / number) / number
    error = max(stats.sem(gaps), of_prompts)
    assert row["difference"] == pytest.approx(gaps.mean())
    assert row["p_value"] == pytest.approx(2 * stats.t.sf(abs(gaps.mean()) / error, 2))
    assert (row["generalises_to"], row["num_seeds"]) == ("training seeds", 3)
    # The same difference on these checkpoints: McNemar's test of 120 prompts.
    assert row["checkpoints_p"] is not None
    assert row["checkpoints_high"] - row["checkpoints_low"] < row["ci_high"] - row["ci_low"]


def test_windows_that_all_seeds_share_add_their_own_part(catalog):
    row = pair(catalog, "yarn", "none", "benchmark = 'perplexity' AND task = 'code'")
    gaps = scores_of("yarn", "code", losses()) - scores_of("none", "code", losses())
    of_seeds = gaps.mean(axis=1).var(ddof=1) / 3
    half = half_width(row["p_value"], 2, of_seeds, gaps)
    assert half == pytest.approx(abs(gaps.mean()), rel=1e-4)
    low, high = (math.log1p(row[end] / row["other_value"]) for end in ("ci_low", "ci_high"))
    half = half_width(0.05, 2, of_seeds, gaps)
    assert (low, high) == pytest.approx((gaps.mean() - half, gaps.mean() + half))


def test_two_evaluations_of_the_same_checkpoints_are_compared_by_what_they_do_not_share(tmp_path):
    training = {0: 0.3, 1: -0.4, 2: 0.2}  # deviation of the shared run of each seed, in nats
    cells = [
        replace(
            cell,
            scores=cell.scores + training[cell.seed],
            value=cell.value * math.exp(training[cell.seed]),
            extra={"checkpoint": f"shared-{cell.seed}"},
        )
        if cell.method in ("pi", "yarn")
        else cell
        for cell in losses()
        if cell.task == "code" and cell.method != "twin"
    ]
    row = pair(written(tmp_path / "catalog.duckdb", cells), "yarn", "pi", "true")
    gaps = scores_of("yarn", "code", cells) - scores_of("pi", "code", cells)
    half = half_width(row["p_value"], 2, gaps.mean(axis=1).var(ddof=1) / 3, gaps)
    assert half == pytest.approx(abs(gaps.mean()), rel=1e-4)


def test_what_a_study_did_not_predict_has_the_q_values_of_benjamini_and_hochberg(tmp_path):
    expects = [expected("yarn", "pi", eval_length=length) for length in (128, 512)]
    cells = [*losses(), *passkeys(), *passkeys(128)]
    path = written(tmp_path / "catalog.duckdb", cells, expects=expects)
    families: dict[str, dict[tuple[float, ...], dict[str, Any]]] = {}
    for row in ask(path, "FROM paired_difference WHERE verdict <> 'the same'"):
        same = tuple(abs(row[name]) for name in ("difference", "p_value"))
        families.setdefault(row["family"], {})[same] = row
    # Of six pairs yarn and twin are the same, and their pairs with the others count once: three
    # per benchmark and length, and for perplexity two of each task with the base model.
    primary, rows = ([*families[name].values()] for name in ("primary", "exploratory"))
    assert {row["num_comparisons"] for row in primary} == {2}
    assert {row["num_comparisons"] for row in rows} == {len(rows)}
    expected_q = stats.false_discovery_control([row["p_value"] for row in rows])
    assert [row["p_adjusted"] for row in rows] == pytest.approx([*expected_q])
    first, second = sorted(primary, key=lambda row: row["p_value"])  # seeds: Holm within an entry
    holm = [2 * first["p_value"], max(2 * first["p_value"], second["p_value"])]
    assert [first["p_adjusted"], second["p_adjusted"]] == pytest.approx([min(1, p) for p in holm])


@pytest.mark.parametrize(
    ("unit", "shift", "kind", "margin", "outcome"),
    [
        ("accuracy", 0.0, "equal", 0.1, "confirmed"),
        ("accuracy", 0.0, "equal", 0.001, "undecided"),
        ("accuracy", -0.3, "equal", 0.1, "contradicted"),
        ("accuracy", 0.3, "not worse", 0.1, "confirmed"),
        ("accuracy", -0.3, "not worse", 0.1, "contradicted"),
        ("accuracy", -0.1, "not worse", 0.1, "undecided"),
        ("perplexity", 0.2, "not worse", 0.05, "contradicted"),
        ("perplexity", 0.2, "not worse", 0.3, "confirmed"),
    ],
)
def test_a_margin_is_decided_by_the_interval(unit, shift, kind, margin, outcome, tmp_path):
    rng = np.random.default_rng(4)
    base = rng.normal(0.5, 0.1, 40)
    cells = [
        passkey(
            name, 512, scores, unit=unit, extra={"checkpoint": "pretrained"},
            value=float(np.exp(scores.mean()) if unit == "perplexity" else scores.mean()),
        )
        for name, scores in (("pi", base), ("yarn", base + shift + rng.normal(0, 0.02, 40)))
    ]  # fmt: skip
    both_frozen = {"frozen": True, "other_frozen": True}
    compared = expected("yarn", "pi", expected=kind, margin=margin, **both_frozen)
    (row,) = ask(written(tmp_path / "c.duckdb", cells, expects=[compared]), "FROM expectations")
    assert row["outcome"] == outcome, row
    if outcome != "undecided":
        assert row["num_needed"] is None
        return
    gaps = np.array(cells[1].scores) - np.array(cells[0].scores)
    ends = (-margin, margin) if kind == "equal" and abs(gaps.mean()) < margin else (-margin,)
    pilot = Contrast(gaps.mean(), 40, stats.sem(gaps))
    needed = pilot.num_needed(bounds=ends)
    # The catalog's level is that of the flips, which is about 0.05.
    assert row["num_needed"] == (needed and pytest.approx(needed, rel=0.01))
    assert needed is None or needed > 40


def test_six_documents_are_too_few_and_say_how_many_would_do(tmp_path):
    gaps = np.array([0.1, 0.3, -0.1, 0.2, 0.4])
    frozen = {"unit": "nats", "extra": {"checkpoint": "pretrained"}}
    cells = [passkey("none", 512, np.zeros(5), **frozen), passkey("yarn", 512, gaps, **frozen)]
    effect = abs(gaps.mean()) / gaps.std(ddof=1)
    for row in ask(written(tmp_path / "c.duckdb", cells), "FROM paired_difference"):
        assert (row["verdict"], row["generalises_to"]) == ("too few", "prompts")
        assert (row["ci_low"], row["smallest_detectable"]) == (None, None)
        number = row["num_needed"]
        assert mean_power(number, effect) >= 0.79
        assert number == 6 or mean_power(number - 1, effect) < 0.81


def against_none(path: Path) -> dict[str, dict[str, Any]]:
    rows = ask(path, "FROM paired_difference WHERE other_method = 'none' AND task IS NOT NULL")
    return {row["method"]: row for row in rows}


def test_a_comparison_is_tested_at_the_last_look_that_both_methods_have_finished(tmp_path):
    unfinished = [
        replace(cell, scores=[]) if (cell.method, cell.seed) == ("yarn", 2) else cell
        for cell in passkeys()
    ]
    early = [cell for cell in passkeys() if cell.seed < 2]
    expects = [expected(method) for method in ("pi", "yarn")]
    registered = [row | {"looks": [2, 3]} for row in registrations((0, expects))]
    options: dict[str, Any] = {"expects": expects, "registered": registered, "looks": [2, 3]}
    found = against_none(written(tmp_path / "looks.duckdb", unfinished, **options))
    after_two = against_none(written(tmp_path / "two.duckdb", early))
    after_all = against_none(written(tmp_path / "all.duckdb", unfinished))
    assert [found[name]["look"] for name in ("pi", "yarn", "twin")] == [2, 1, 2]
    assert [found[name]["look_seeds"] for name in ("pi", "yarn", "twin")] == [3, 2, 3]
    assert found["yarn"]["p_value"] == pytest.approx(after_two["yarn"]["p_value"])
    assert found["pi"]["p_value"] == pytest.approx(after_all["pi"]["p_value"])
    # Lan and DeMets 1983, at two of three seeds.
    first = 2 * stats.norm.sf(stats.norm.ppf(0.975) / np.sqrt(2 / 3))
    for name, level in (("pi", 0.05 - first), ("yarn", first)):
        assert found[name]["level"] == pytest.approx(level)
        assert found[name]["family"] == "primary"
    raised = sorted(row["p_value"] * 0.05 / row["level"] for row in (found["pi"], found["yarn"]))
    corrected = sorted(found[name]["p_adjusted"] for name in ("pi", "yarn"))
    assert corrected == pytest.approx([2 * raised[0], max(2 * raised[0], raised[1])])

    pi = {name: value for name, value in expects[0].items() if name not in ("entry", "text")}
    settled = {
        "study": "s", "tested_at": registered[0]["registered_at"], **pi, "look": 1,
        "num_seeds": 2, "level": first, "p_adjusted": 0.001, "outcome": "confirmed",
    }  # fmt: skip
    default = expected("pi", entry=None, expected="not worse", margin=0.02, eval_length=128)
    options["expects"] = [*expects, default]  # looks do not test it
    path = written(tmp_path / "settled.duckdb", unfinished, tested=[settled], **options)
    assert against_none(path)["pi"]["look_seeds"] == 2
    assert against_none(path)["pi"]["p_value"] == pytest.approx(after_two["pi"]["p_value"])
    (outcome,) = ask(
        path,
        "SELECT outcome, settled_seeds FROM expectations WHERE method = 'pi' AND entry IS NOT NULL",
    )
    assert outcome == {"outcome": "confirmed", "settled_seeds": 2}
    (shown,) = read_contents(path, "s").settled
    assert (shown["method"], shown["frozen"], shown["num_seeds"]) == ("pi", False, 2)


def test_an_early_look_says_how_many_seeds_would_decide_at_the_level_of_the_last_look(tmp_path):
    gains = {0: 0.05, 1: 0.08, 2: 0.11}
    cells = [
        passkey(name, 512, scores, frozen, seed, unit="nats", extra={"checkpoint": checkpoint})
        for seed, gain in gains.items()
        for name, frozen, scores, checkpoint in (
            ("none", True, np.linspace(0, 1, 20), "pretrained"),
            ("pi", False, np.linspace(0, 1, 20) + gain, f"pi-{seed}"),
        )
    ]
    expects = [expected("pi")]
    registered = [row | {"looks": [3, 60]} for row in registrations((0, expects))]
    path = written(
        tmp_path / "c.duckdb", cells, expects=expects, registered=registered, looks=[3, 60]
    )
    found = against_none(path)["pi"]
    assert (found["look"], found["p_adjusted"] > 0.05) == (1, True)
    gap, spread = np.mean([*gains.values()]), np.std([*gains.values()], ddof=1)

    def power(number: int) -> float:
        shift, quantile = gap / spread * np.sqrt(number), stats.t.ppf(0.975, number - 1)
        return float(stats.nct.sf(quantile, number - 1, shift))

    # The last look has almost the whole level of 0.05; the first one would need far more seeds.
    assert power(found["num_needed"]) >= 0.78
    assert power(found["num_needed"] - 2) < 0.8


def test_looks_that_were_changed_after_a_result_make_all_comparisons_exploratory(tmp_path):
    expects = [expected("pi")]
    before, after = registrations((0, expects), (5, expects))
    registered = [before | {"looks": None}, after | {"looks": [2, 3]}]
    path = written(
        tmp_path / "c.duckdb", passkeys(), expects=expects, registered=registered, looks=[2, 3]
    )
    assert against_none(path)["pi"]["family"] == "exploratory"


def test_expectations_that_were_added_after_a_result_are_exploratory(tmp_path):
    early, added = expected("yarn", "pi"), expected("yarn", entry=1)
    registered = registrations((0, [early]), (0, [early]), (5, [added]))
    path = written(tmp_path / "c.duckdb", passkeys(), expects=[early, added], registered=registered)
    first, second = ask(path, "FROM expectations")
    for row, version, results in ((first, 0, 0), (second, 2, 5)):
        assert row["registered_at"] == registered[version]["registered_at"]
        assert row["results_before"] == results
    assert [row["family"] for row in (first, second)] == ["primary", "exploratory"]
    assert [row["is_registered"] for row in (first, second)] == [True, False]
    unknown = tmp_path / "unknown.duckdb"
    written(unknown, passkeys(), expects=[early, added], registered=[])
    assert {row["family"] for row in ask(unknown, "FROM expectations")} == {"exploratory"}
    assert catalog_digest(path) == catalog_digest(unknown), "depends on results alone"
    assert [row["results_before"] for row in ask(path, "FROM registrations")] == [0, 0, 5]


def test_default_comparisons_are_a_family_of_their_own(tmp_path):
    default = {"entry": None, "expected": "not worse", "margin": 0.02, "eval_length": 128}
    expects = [expected(name, **default) for name in ("pi", "yarn", "twin")]
    path = written(tmp_path / "c.duckdb", [*passkeys(), *passkeys(128)], expects=expects)
    query = "FROM paired_difference WHERE family = 'short context' AND other_method = 'none'"
    rows = ask(path, query)
    assert {(row["method"], row["eval_length"]) for row in rows} == {
        ("pi", 128), ("yarn", 128), ("twin", 128),
    }  # fmt: skip
    # yarn and twin have the same scores, which count once.
    assert {row["num_comparisons"] for row in rows} == {2}
    late = written(
        tmp_path / "late.duckdb", passkeys(128), expects=expects,
        registered=registrations((3, expects)),
    )  # fmt: skip
    assert {row["family"] for row in ask(late, "FROM expectations")} == {"exploratory"}


def test_both_rows_of_a_pair_mirror_each_other(catalog):
    rows = ask(catalog, "FROM paired_difference WHERE benchmark = 'passkey'")
    keyed = {(r["eval_length"], r["method"], r["other_method"]): r for r in rows}
    opposite = {"better": "worse", "worse": "better"}
    for (family, first, second), one in keyed.items():
        other = keyed[family, second, first]
        for name, mirrored in (
            ("difference", "difference"), ("ci_low", "ci_high"), ("lowest", "highest"),
        ):  # fmt: skip
            assert one[name] == (None if other[mirrored] is None else -other[mirrored])
        assert one["verdict"] == opposite.get(other["verdict"], other["verdict"])
        assert (one["num_better"], one["value"]) == (other["num_worse"], other["other_value"])
    # These two have the same answers; the study still says what it could have seen.
    row = keyed[512, "twin", "yarn"]
    assert (row["verdict"], row["difference"], row["p_adjusted"]) == ("the same", 0.0, 1.0)
    assert row["smallest_detectable"] > 0


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
def test_a_method_that_was_not_asked_the_same_is_not_compared(changes, tmp_path):
    cells = changed(passkeys(), "yarn", **changes)
    path = written(tmp_path / "catalog.duckdb", cells)
    rows = ask(path, "SELECT DISTINCT method, num_seeds FROM paired_difference")
    seeds = {row["method"]: row["num_seeds"] for row in rows}
    # In another profile it is another benchmark, and two seeds of the usual one are left.
    if "extra" in changes:
        assert seeds.keys() == {"none", "pi", "twin", "yarn"}
        assert pair(path, "yarn", "pi", "true")["num_seeds"] == 2
    else:
        assert seeds == {"none": 3, "pi": 3, "twin": 3}


def test_methods_that_share_some_tasks_are_compared_over_these(tmp_path):
    cells = [cell for cell in losses() if (cell.method, cell.task) != ("yarn", "prose")]
    long = [replace(cell, eval_length=1024) for cell in cells if cell.task == "code"]
    path = written(tmp_path / "catalog.duckdb", [*cells, *long])
    assert pair(path, "yarn", "pi", "eval_length = 512")["tasks"] == "code"
    both = pair(path, "twin", "pi", "eval_length = 512")
    assert both["tasks"] == "code, prose"
    # Each of 12 ordered pairs is compared over all its tasks at both lengths, and nowhere lost.
    assert len(ask(path, "FROM paired_difference WHERE is_all_tasks")) == 2 * 12
    pairs = read_contents(path, "s").pairs
    assert len(pairs) == 2 * 12
    shown = {row["method"]: row["value"] for row in pairs if row["eval_length"] == 512}
    assert shown["twin"] == both["value"]
    with open_catalog(path) as connection:
        (summary,) = summaries(connection, "s")
    assert {row["eval_length"] for row in summary.rows.means} == {512, 1024}


def test_tasks_count_alike_however_many_prompts_they_have(tmp_path):
    """A large task cannot outvote a small one: test and difference weigh tasks alike."""
    rng, cells = np.random.default_rng(0), []
    for task, number, gap in (("large", 200, 0.02), ("small", 20, -0.5)):
        plain = 0.5 + rng.normal(0, 0.05, number)
        moved = plain + gap + rng.normal(0, 0.01, number)
        for method, scores in (("pi", moved), ("yarn", plain)):
            value = float(scores.mean())
            cells.append(Answered(method, True, 0, "longbench", task, 512, scores, value))
    row = pair(written(tmp_path / "catalog.duckdb", cells), "pi", "yarn", "task IS NULL")
    assert row["difference"] == pytest.approx(-0.24, abs=0.01)
    assert row["ci_high"] < 0
    assert row["verdict"] == "worse"


@pytest.mark.parametrize("order", [("pi", "none", "yarn", "twin"), ("none", "yarn", "twin", "pi")])
def test_who_is_asked_other_prompts_takes_no_comparison_from_the_others(order, tmp_path):
    cells = sorted(passkeys(), key=lambda cell: order.index(cell.method))
    asked = changed(cells, "pi", scores=[0.0, 1.0] * PROMPTS, value=0.5)  # in one seed of three
    path = written(tmp_path / "catalog.duckdb", asked)
    rows = ask(path, "SELECT method, other_method FROM paired_difference")
    pairs = {frozenset(row.values()) for row in rows}
    expected = (("yarn", "none"), ("twin", "none"), ("yarn", "twin"))
    assert pairs == {frozenset(one) for one in expected}


def test_seeds_that_share_a_result_are_one_run(tmp_path):
    shared = [
        replace(cell, seed=seed, frozen=True, result=f"{cell.method}-{cell.task}")
        for seed in SEEDS for cell in losses() if cell.seed == 0
    ]  # fmt: skip
    path = written(tmp_path / "catalog.duckdb", shared)
    row = pair(path, "yarn", "pi", "true")
    assert (row["num_seeds"], row["num_samples"]) == (1, 2 * WINDOWS)
    assert row["generalises_to"] == "prompts"
    found = ask(path, "SELECT DISTINCT num_seeds, seed_sd FROM mean_over_seeds")
    assert found == [{"num_seeds": 1, "seed_sd": None}]


@pytest.mark.parametrize("missing", [64, 512])
def test_the_base_models_threshold_follows_from_the_length_that_it_is_taken_at(missing, tmp_path):
    cells = [
        passkey(method, length, [] if (method, length) == ("none", missing) else 0.95)
        for method in ("none", "pi")
        for length in (64, 128, 512)
    ]
    path = written(tmp_path / "catalog.duckdb", cells)
    (row,) = ask(path, "FROM effective_length WHERE rule = 'kept' AND method = 'pi'")
    assert row["threshold"] == pytest.approx(0.855)
    assert (row["tokens"], row["higher_is_better"]) == (512, True)


def test_rulers_and_nolimas_thresholds_are_those_computed_by_hand(tmp_path):
    shares = {
        "none": {64: 0.60, 128: 0.50, 256: 0.10},
        "yarn": {64: 0.92, 128: 1.00, 256: 0.855, 512: 0.845},
    }
    cells = [passkey(name, at, share) for name, of in shares.items() for at, share in of.items()]
    rows = ask(written(tmp_path / "catalog.duckdb", cells), "FROM effective_length")
    found = {
        (row["method"], row["rule"]): (pytest.approx(row["threshold"]), row["tokens"])
        for row in rows
    }
    assert found == {
        # 90 % of the base model's 0.50 at its trained context of 128 tokens.
        ("none", "kept"): (0.45, 128),
        ("yarn", "kept"): (0.45, 512),
        # 0.855 misses RULER's 0.856, and 0.60 misses it at the shortest length.
        ("none", "ruler"): (0.856, 0),
        ("yarn", "ruler"): (0.856, 128),
        # 85 % of each method's own best within 128 tokens: 0.60 at 64 and 1.00 at 128.
        ("none", "nolima"): (0.51, 64),
        ("yarn", "nolima"): (0.85, 256),
    }
    (bounds,) = (row for row in rows if (row["method"], row["rule"]) == ("yarn", "nolima"))
    # 0.855 of 200 answers is not surely above 85 %, nor 0.845 surely below it.
    assert (bounds["ci_low"], bounds["ci_high"]) == (128, 512)


def test_where_the_base_model_finds_nothing_nobody_holds_its_score(tmp_path):
    cells = [passkey(method, length, 0.0) for method in ("none", "pi") for length in (64, 128, 512)]
    rows = ask(written(tmp_path / "catalog.duckdb", cells), "FROM effective_length")
    assert {(row["rule"], row["tokens"]) for row in rows} == {("ruler", 0)}


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
        scores = [] if name == missing else scores
        cells.append(passkey(name, 512, scores, extra=extra, **whose))
    catalog = written(path, cells)
    points = ask(catalog, "FROM perplexity_vs_downstream")
    return [ask(catalog, "FROM perplexity_agreement"), len(points)]


def test_an_order_of_methods_needs_no_base_model_and_is_of_the_points_that_are_shown(tmp_path):
    (row,), points = orders(tmp_path / "all.duckdb")
    assert (row["methods"], row["num_methods"], points) == ("all", 7, 7)
    assert row["p_adjusted"] == row["p_value"]  # of exact methods alone it is the same comparison
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


def test_the_effective_length_is_the_last_that_keeps_the_base_models_own_score(tmp_path):
    cells = []
    for method, by_length in {
        "none": {64: 1.0, 128: 0.9, 256: 0.1, 512: 0.0},
        "yarn": {64: 0.95, 128: 0.9, 256: 0.85, 512: 0.5},
    }.items():
        for length, share in by_length.items():
            cells.append(passkey(method, length, share))
            nll = [share + 0.001 * math.sin(n) for n in range(50)]
            value = float(np.exp(np.mean(nll)))
            cells.append(
                Answered(
                    method, True, 0, "perplexity", "code", length, nll, value, unit="perplexity"
                )
            )
    # The longest length is planned first and not done.
    path = written(tmp_path / "catalog.duckdb", [passkey("yarn", 1024, []), *cells])
    rows = ask(path, "FROM effective_length WHERE rule = 'kept'")
    found = {(row["method"], row["benchmark"]): row for row in rows}
    keyed = {key: (row["ci_low"], row["tokens"], row["ci_high"]) for key, row in found.items()}
    # 0.9 of 0.9 is 0.81: 0.85 of 200 prompts is above it, but not surely.
    assert found["yarn", "passkey"]["threshold"] == pytest.approx(0.81)
    assert keyed["none", "passkey"] == (TRAINED, TRAINED, TRAINED)
    assert keyed["yarn", "passkey"] == (TRAINED, 256, 256)
    # Here losses fall with length but for the first, which exceeds exp(0.9) by less than a tenth.
    assert keyed["yarn", "perplexity"] == (512, 512, 512)
    assert found["none", "perplexity"]["threshold"] == pytest.approx(1.1 * math.exp(0.9), rel=1e-4)


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
def test_what_a_number_is_of_its_samples_is_seen_from_both(value, form):
    assert aggregation_of(np.array([1.0, 3.0]), value) == form
