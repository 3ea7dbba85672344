"""Means over different tasks never share a column."""

from typing import Any

from dashboards.scores import comparable


def row(method: str, **facts: Any) -> dict[str, Any]:
    return {"benchmark": "perplexity", "eval_length": 8, "method": method, "value": 1.0, **facts}


SCORES = [
    row("none", task="code", task_set="code of seed 0", rank=1),
    row("none", task="books", task_set="books of seed 0", rank=1),  # before nobody
    row("pi", task="code", task_set="code of seed 0", rank=2),
    row("none", benchmark="ruler", task="one", task_set="one of seed 0", rank=1),
]


def test_a_benchmark_is_split_by_task_if_methods_have_different_tasks():
    means = [row("none", task_set="both"), row("pi", task_set="code")]
    other = row("none", benchmark="ruler", task_set="one")
    found = comparable([*means, other], SCORES)
    assert found[-1] == other
    assert [(one["benchmark"], one["method"], one["is_best"]) for one in found[:-1]] == [
        ("perplexity\ncode", "none", True),
        ("perplexity\nbooks", "none", False),
        ("perplexity\ncode", "pi", False),
    ]


def test_no_value_is_best_if_methods_have_different_seeds():
    means = [row("none", task_set="both"), row("pi", task_set="code")]
    for seed, is_best in ((0, True), (1, False)):
        scores = [
            row("none", task="code", task_set="code of seed 0", rank=1),
            row("pi", task="code", task_set=f"code of seed {seed}", rank=2 - seed),
        ]
        assert [one["is_best"] for one in comparable(means, scores)] == [is_best, False]
