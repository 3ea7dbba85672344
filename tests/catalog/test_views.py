"""The views over tables filled here by hand, of which every number can be read off.

No store, no study: three seeds of one method, complete, and a second base model with holes.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest

import catalog.build
from catalog.build import _VIEWS
from dashboards.claims.summary import summaries

SQL = Path(catalog.build.__file__).parent / "sql"
LENGTHS, SEEDS, BINS = (100, 200), (0, 1, 2), (0, 64)


def fill(connection: Any, table: str, **columns: Any) -> None:
    names, places = ", ".join(columns), ", ".join("?" * len(columns))
    connection.execute(
        f"INSERT INTO store.{table} ({names}) VALUES ({places})", [*columns.values()]
    )


def fill_cell(
    connection: Any, cell: str | None, base_model: str, status: str, **columns: Any
) -> None:
    fill(
        connection, "cell", study="s", cell=cell, base_model=base_model,
        exact_attention=True, benchmark="perplexity", task="code", profile="clean", status=status,
        reason=None if status == "done" else f"because {status}", attempts=1,
        **{"method": "yarn", "seed": 0, "eval_length": 100, "frozen": True, **columns},
    )  # fmt: skip


def fill_score(connection: Any, cell: str, metric: str, value: float, *, default: bool) -> None:
    fill(
        connection, "score", cell=cell, metric=metric, value=value, num_samples=1,
        higher_is_better=False, is_default=default, unit="perplexity", kernel="sdpa",
    )  # fmt: skip


def fill_artifact(
    connection: Any, artifact: str, day: int, kind: str = "cell", seconds: float = 1.0
) -> None:
    fill(
        connection, "artifact", artifact=artifact, kind=kind, name=artifact, folder=artifact,
        intact=True, num_files=1, bytes=1, attempts=1, seconds=seconds,
        started_at=f"2026-01-{day:02d}", created_at=f"2026-02-{day:02d}", environment="e",
        spec="{}", result="{}", execution="{}",
    )  # fmt: skip


@contextlib.contextmanager
def empty() -> Iterator[Any]:
    with duckdb.connect(":memory:") as connection:
        for name in ("schema", *_VIEWS):
            connection.execute((SQL / f"{name}.sql").read_text("utf-8"))
        yield connection


@pytest.fixture(scope="module")
def views() -> Iterator[Any]:
    with empty() as connection:
        for base_model in ("toy", "other"):
            fill(
                connection, "study", study="s", hypothesis="h", target_context=200,
                base_model=base_model, trained_context=100, match="tokens", arguments="s",
            )  # fmt: skip
        fill(connection, "environment", environment="e", host="h")
        position = 0
        for length in LENGTHS:
            for seed in SEEDS:
                cell = f"c{length}-{seed}"
                fill_cell(
                    connection, cell, "toy", "done", seed=seed, eval_length=length,
                    position=position,
                )  # fmt: skip
                fill_score(connection, cell, "perplexity", length + 10 * seed**2, default=True)
                fill_score(connection, cell, "perplexity_last", 1.0, default=False)
                for place in BINS:
                    fill(
                        connection, "token_nll", cell=cell, position_bin=place,
                        nll=length + place + 3 * seed**2,
                    )  # fmt: skip
                position += 1
                fill_artifact(connection, cell, position)
        holes = (("f", "failed"), ("m", "missing"), (None, "unavailable"))
        for number, (cell, status) in enumerate(holes, start=position):
            fill_cell(connection, cell, "other", status, seed=number, position=number)
        # What a failed cell left behind is no score.
        fill_artifact(connection, "f", 20)
        fill_score(connection, "f", "perplexity", 5.0, default=True)
        fill(connection, "edge", child="c100-0", role="held_out", parent="c100-1")
        fill(connection, "edge", child="c100-0", role="checkpoint", parent="gone")
        yield connection


def rows(views: Any, sql: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = views.execute(sql).fetchall()
    return found


OF_TOY = "WHERE base_model = 'toy' ORDER BY ALL"
READ_OFF: Mapping[str, tuple[str, list[tuple[Any, ...]]]] = {
    "means are of the default metric over the seeds of one length": (
        "SELECT eval_length, metric, value, lowest, highest, num_seeds"
        f" FROM score_by_length {OF_TOY}",
        [
            (length, "perplexity", pytest.approx(length + 50 / 3), length, length + 40, 3)
            for length in LENGTHS
        ],
    ),
    "losses by position are means over the seeds of one length": (
        "SELECT eval_length, position_bin, nll, lowest, highest, num_seeds"
        f" FROM nll_by_position {OF_TOY}",
        [
            (length, place, length + place + 5, length + place, length + place + 12, 3)
            for length in LENGTHS
            for place in BINS
        ],
    ),
    "scores are those of done cells with every metric": (
        "SELECT cell, metric, value FROM scores",
        [
            row
            for length in LENGTHS
            for seed in SEEDS
            for row in (
                (f"c{length}-{seed}", "perplexity", length + 10 * seed**2),
                (f"c{length}-{seed}", "perplexity_last", 1.0),
            )
        ],
    ),
    "a study's cells are counted by base model": (
        "SELECT base_model, num_cells, num_done FROM studies ORDER BY base_model",
        [("other", 3, 0), ("toy", 6, 6)],
    ),
    "every kind of hole is listed with its reason": (
        "SELECT cell, status, reason FROM missing_cells",
        [
            ("f", "failed", "because failed"),
            ("m", "missing", "because missing"),
            (None, "unavailable", "because unavailable"),
        ],
    ),
    "lineage keeps a parent that is gone": (
        "SELECT role, parent, parent_kind FROM edges ORDER BY role",
        [("checkpoint", "gone", None), ("held_out", "c100-1", "cell")],
    ),
    "an environment was used from its first start to its last end": (
        "SELECT num_artifacts, first_used::DATE::VARCHAR, last_used::DATE::VARCHAR"
        " FROM environments",
        [(7, "2026-01-01", "2026-02-20")],
    ),
}


@pytest.mark.parametrize(("sql", "expected"), READ_OFF.values(), ids=READ_OFF.keys())
def test_a_view_shows_what_can_be_read_off(views, sql, expected):
    assert rows(views, sql) == expected


def test_costs_count_all_stages_and_each_seed_once():
    with empty() as views:
        fill_artifact(views, "base", 1, "base", 1000.0)
        for seed in (0, 1):
            last, first, cell = f"last{seed}", f"first{seed}", f"c{seed}"
            for length in LENGTHS:
                fill_cell(
                    views, f"{cell}-{length}", "toy", "done", seed=seed, eval_length=length,
                    frozen=False, checkpoint=last, train_tokens=500, train_flops=7.0, position=seed,
                    seconds=3.0, tokens=length, flops=2.0,
                )  # fmt: skip
                fill_artifact(views, f"{cell}-{length}", 1)
                fill_score(views, f"{cell}-{length}", "perplexity", 5.0, default=True)
            fill_artifact(views, first, 1, "finetune", 30.0)
            fill_artifact(views, last, 1, "finetune", 10.0)
            fill(views, "edge", child=first, role="base", parent="base")
            fill(views, "edge", child=last, role="base", parent=first)
            fill(views, "loss", checkpoint=first, step=1, peak_memory_bytes=4e9)
            fill(views, "loss", checkpoint=last, step=1, peak_memory_bytes=3e9)
        found = rows(views, "SELECT * EXCLUDE (study, base_model, method, frozen) FROM costs")
        assert found == [("yarn-tuned", 1000, 14.0, 80.0, 4.0, 4, 12.0, 600, 8.0)]
        runs = rows(
            views,
            "SELECT checkpoint, is_finetuning, is_last FROM training_runs ORDER BY checkpoint",
        )
        assert runs == [
            ("base", False, False),
            *((f"first{seed}", True, False) for seed in (0, 1)),
            *((f"last{seed}", True, True) for seed in (0, 1)),
        ]


def test_the_total_cost_counts_a_run_that_several_methods_use_once():
    with empty() as views:
        fill(
            views, "study", study="s", hypothesis="h", target_context=200, base_model="toy",
            trained_context=100, match="tokens", arguments="s",
        )  # fmt: skip
        # `again` evaluates the weights of `first`, and the training of `next` starts from them.
        of = {"first": ("f", 7e12), "again": ("f", 7e12), "next": ("n", 1e12)}
        for position, (method, (run, flops)) in enumerate(of.items()):
            fill_cell(
                views, method, "toy", "done", method=method, frozen=False, checkpoint=run,
                train_flops=flops, position=position, seconds=3.0, flops=2e12,
            )  # fmt: skip
            fill_artifact(views, method, 1)
            fill_score(views, method, "perplexity", 5.0, default=True)
        fill_artifact(views, "f", 1, "finetune", 30.0)
        fill_artifact(views, "n", 1, "finetune", 10.0)
        fill(views, "edge", child="n", role="base", parent="f")
        (made,) = summaries(views, "s")
        assert made.total_cost() == (
            "Total cost: training 40 s (8.0e12 FLOPs), evaluation 9 s (6.0e12 FLOPs)."
        )


def test_view_columns_explains_every_column_of_every_view(views):
    found = rows(views, "SELECT view_name, column_name FROM view_columns WHERE view_name = 'costs'")
    assert [name for _, name in found] == views.execute("FROM costs").fetchdf().columns.to_list()
    shown = rows(views, "SELECT DISTINCT view_name FROM view_columns WHERE view_comment <> ''")
    assert ("costs",) in shown
    assert ("view_columns",) in shown
