"""The toy study shows the papers' effects on its first seed; `make study` runs all of it.

The variants and benchmarks that show them run through `lce run`. Thresholds lie far from the
measured values (docs/performance.md), so that another Python's library text passes too.
"""

from pathlib import Path

import pytest

from catalog.queries import run_query
from tests.support.studies import lce

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

MEANS = """
    SELECT benchmark, method || CASE WHEN frozen THEN '' ELSE '-tuned' END, eval_length, avg(value)
    FROM scores WHERE is_default AND study = 'toy' GROUP BY ALL
"""
LOSSES = """
    SELECT avg(loss) FILTER (step BETWEEN 21 AND 30) - avg(loss) FILTER (step > 30)
    FROM trainings t JOIN (SELECT DISTINCT checkpoint, method FROM scores WHERE NOT frozen) USING
    (checkpoint) WHERE method = '{method}'
"""

VARIANTS = (
    *("none", "pi", "lm_infinite", "self_extend", "pi-tuned", "ntk_32k-tuned", "yarn-tuned"),
    *("clex-tuned", "small_base-tuned", "landmark-tuned"),
)
BENCHMARKS = ("perplexity", "passkey")
LENGTHS = (128, 512, 1024)
SELECTED = ",".join(
    f"{axis}={value}"
    for axis, values in (
        ("seed", [0]), ("variant", VARIANTS), ("benchmark", BENCHMARKS), ("eval_length", LENGTHS),
    )
    for value in values
)  # fmt: skip
TASKS = 3
"""Perplexity has two domains."""

Table = dict[str, dict[int, float]]


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("toy") / "home"
    lce(folder, "run", "toy", "--select", SELECTED, timeout=7200)
    return folder


@pytest.fixture(scope="module")
def means(home) -> dict[str, Table]:
    found: dict[str, Table] = {}
    for benchmark, method, length, value in run_query(home / "catalog.duckdb", MEANS)[1]:
        found.setdefault(benchmark, {}).setdefault(method, {})[length] = value
    return found


@pytest.fixture
def perplexity(means) -> Table:
    return means["perplexity"]


@pytest.fixture
def passkey(means) -> Table:
    return means["passkey"]


def test_every_selected_cell_is_done(home):
    (done,) = run_query(home / "catalog.duckdb", "FROM cells WHERE status = 'done'")[1:]
    assert len(done) == len(VARIANTS) * TASKS * len(LENGTHS)


def test_the_base_collapses_beyond_its_context(perplexity, passkey):
    base = perplexity["none"]
    assert base[128] < base[512] < base[1024]
    assert base[1024] > 2.5 * base[128]
    assert passkey["none"][128] > 0.95
    assert passkey["none"][512] < 0.7
    assert passkey["none"][1024] < 0.35


def test_lm_infinite_keeps_perplexity_and_loses_retrieval(perplexity, passkey):
    assert perplexity["lm_infinite"][1024] < 1.1 * perplexity["lm_infinite"][128]
    assert passkey["lm_infinite"][128] > 0.8
    assert max(passkey["lm_infinite"][512], passkey["lm_infinite"][1024]) < 0.5


def test_self_extend_keeps_both_without_training(perplexity, passkey):
    assert perplexity["self_extend"][512] < 1.25 * perplexity["self_extend"][128]
    assert perplexity["self_extend"][1024] < 0.6 * perplexity["none"][1024]
    assert passkey["self_extend"][512] > 0.9
    assert passkey["self_extend"][1024] > 0.8


def test_a_small_base_keeps_perplexity_and_loses_retrieval(perplexity, passkey):
    assert perplexity["small_base-tuned"][512] < 0.75 * perplexity["none"][512]
    assert perplexity["small_base-tuned"][1024] < 0.6 * perplexity["none"][1024]
    assert passkey["small_base-tuned"][512] < 0.4


def test_landmarks_keep_perplexity_at_any_length(perplexity):
    assert perplexity["landmark-tuned"][1024] < 1.1 * perplexity["landmark-tuned"][128]
    assert perplexity["landmark-tuned"][1024] < 0.6 * perplexity["none"][1024]


def test_learned_frequencies_reach_beyond_the_target(perplexity, passkey):
    assert perplexity["clex-tuned"][512] < 0.65 * perplexity["none"][512]
    assert passkey["clex-tuned"][1024] > 0.85


@pytest.mark.parametrize("method", ["ntk_32k-tuned", "yarn-tuned"])
def test_tuned_ntk_and_yarn_beat_the_base_by_far(perplexity, passkey, method):
    assert perplexity[method][512] < 0.65 * perplexity["none"][512]
    assert passkey[method][512] > 0.9
    assert passkey[method][512] > passkey["none"][512] + 0.25


def test_tuned_pi_needs_more_steps(perplexity, home):
    pi = perplexity["pi-tuned"][512]
    assert pi < 0.6 * perplexity["pi"][512]  # training helps it most
    assert pi > 1.15 * max(perplexity["ntk_32k-tuned"][512], perplexity["yarn-tuned"][512])
    falling = {
        method: run_query(home / "catalog.duckdb", LOSSES.format(method=method))[1][0][0]
        for method in ("pi", "yarn", "ntk_32k")
    }
    # ... and at the last step its loss still falls faster than that of the others.
    assert falling["pi"] > 1.5 * max(falling["yarn"], falling["ntk_32k"], 0.0)


def test_its_report_has_every_variant(home):
    page = Path(lce(home, "report", "toy").strip()).read_text(encoding="utf-8")
    assert [name for name in VARIANTS if name.removesuffix("-tuned") not in page] == []
