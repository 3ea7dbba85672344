"""Convert the store to Arrow tables, one per table of `sql/schema.sql`.

Rows are ordered by study, plan position and artifact folder, so the same store always gives the
same tables. If the files of a cell or training run are intact but cannot be parsed, it has no rows
and counts as damaged, so that one bad file does not break the catalog.
"""

import shlex
from collections.abc import Container, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from catalog.holdings import Holdings, take_stock
from catalog.limits import OFFLINE
from catalog.long_perplexity import long_perplexities
from lce_core.errors import DataError, LceError
from lce_core.methods import METHODS
from lce_core.store.artifacts import Store
from lce_core.store.cell_tables import (
    CONTROLLED_SAMPLES,
    METRICS_IN_NATS,
    SAMPLES,
    SAMPLES_FILE,
    TOKEN_NLL,
    TOKEN_NLL_FILE,
)
from lce_core.store.identity import ID_DIGITS, canonical_json, fingerprint
from lce_core.store.study_folders import amendments
from lce_core.store.verification import kept

Row = dict[str, Any]

_OF_VERSION = ("sha256", "results_before", "hypothesis", "looks")
_UNREADABLE = (OSError, ValueError, KeyError, LceError, pa.ArrowException)


class _Parsed(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class _Score(_Parsed):
    metric: str
    value: float
    ci_low: float | None = None
    ci_high: float | None = None
    num_samples: int
    higher_is_better: bool


class _Cost(_Parsed):
    tokens: int
    flops: float


class _CellResult(_Parsed):
    scores: list[_Score]
    unit: str
    default_metric: str
    kernel: str | None = None
    measured: _Cost | None = None
    predicted: _Cost | None = None


class _Loss(_Parsed):
    step: int
    tokens: int
    loss: float
    learning_rate: float
    tokens_per_second: float | None = None
    mfu: float | None = None
    grad_norm: float | None = None
    peak_memory_bytes: int | None = None


def extract(store: Store) -> dict[str, pa.Table]:
    holdings, plans = take_stock(store), store.studies.plans()
    environments = {
        short: fingerprint(record.environment)[:ID_DIGITS]
        for short, record in holdings.records.items()
    }
    tables = _cell_contents(plans, holdings)
    rows: dict[str, Iterable[Row]] = {
        # Keep this order: the losses mark unreadable training runs as damaged, as the contents of
        # cells above do, and the entries below read these marks.
        "loss": _loss_rows(plans, holdings),
        "study": _study_rows(plans),
        "plugin": (
            {**plugin, "study": plan["study"]} for plan in plans for plugin in plan["plugins"]
        ),
        "expectation": (
            {**comparison, "study": plan["study"]}
            for plan in plans
            for comparison in plan["expects"]
        ),
        "cell": _cell_rows(plans, holdings),
        "trial": _trial_rows(plans, holdings),
        "search": _search_rows(plans, holdings),
        "artifact": _artifact_rows(holdings, environments),
        "long_perplexity": long_perplexities(plans, holdings),
        "edge": (
            {"child": short, "parent": parent[:ID_DIGITS], "role": role}
            for short, record in holdings.records.items()
            for role, parent in sorted(record.parents.items())
        ),
        "environment": _environment_rows(holdings, environments),
        "verification": _verification_rows(store),
    }
    tables |= {name: _table(found, f"store.{name}") for name, found in rows.items()}
    return {name: table for name, table in tables.items() if table.num_rows}


def history(store: Store) -> dict[str, pa.Table]:
    """Return the rows of the tables in schema `history`, by table name.

    In `registration`, a version without comparisons has one row in which all columns of the
    comparison are NULL.
    """
    registered = (
        {
            **{key: one.get(key) for key in _OF_VERSION},
            **comparison,
            "study": study,
            "version": version,
            "registered_at": _utc(one["at"]),
        }
        for study, versions in store.studies.registrations().items()
        for version, one in enumerate(versions, start=1)
        for comparison in one["expects"] or [{}]
    )
    tested = (
        {**comparison, "study": study, "tested_at": _utc(look["at"])}
        for study, looks in store.studies.latest_looks().items()
        for look in looks
        for comparison in look["comparisons"]
    )
    amended = (
        {**version, "study": study, "amended_at": _utc(version["at"]), "change": change}
        for study, versions in store.studies.registrations().items()
        for version, change in amendments(versions)
    )
    rows = {"registration": registered, "look": tested, "amendment": amended}
    return {name: _table(found, f"history.{name}") for name, found in rows.items()}


def _cell_contents(plans: list[Row], holdings: Holdings) -> dict[str, pa.Table]:
    lengths = {cell["cell"]: cell["eval_length"] for plan in plans for cell in plan["cells"]}
    scores: list[Row] = []
    samples, token_nll = [], []
    for short, eval_length in lengths.items():
        if short is None or holdings.intact(short) is None:
            continue  # an unavailable cell has no id
        try:
            rows = list(_score_rows(short, holdings))
            sampled = _read_parquet(holdings.file(short, SAMPLES_FILE), SAMPLES, CONTROLLED_SAMPLES)
            bins = _read_parquet(holdings.file(short, TOKEN_NLL_FILE), TOKEN_NLL)
        except _UNREADABLE as error:
            holdings.damage[short] = _first_line(error)
            continue
        scores += rows
        if sampled.num_rows:
            samples.append(_with(sampled, cell=short, eval_length=eval_length))
        if bins.num_rows:
            token_nll.append(_with(bins, cell=short))
    return {
        "score": _table(scores, "store.score"),
        "sample": _joined(samples),
        "token_nll": _joined(token_nll),
    }


def _score_rows(short: str, holdings: Holdings) -> Iterator[Row]:
    result = _CellResult.model_validate(holdings.records[short].result)
    for score in result.scores:
        yield {
            "cell": short,
            **score.model_dump(),
            "is_default": score.metric == result.default_metric,
            "unit": "nats" if score.metric in METRICS_IN_NATS else result.unit,
            "kernel": result.kernel,
        }


def _loss_rows(plans: list[Row], holdings: Holdings) -> Iterator[Row]:
    for short in dict.fromkeys(run["checkpoint"] for plan in plans for run in plan["trainings"]):
        if holdings.intact(short) is None:
            continue
        try:
            lines = holdings.file(short, "loss.jsonl").read_text(encoding="utf-8").splitlines()
            rows = [_Loss.model_validate_json(line).model_dump() for line in lines]
        except _UNREADABLE as error:
            holdings.damage[short] = _first_line(error)
            continue
        yield from ({"checkpoint": short, **row} for row in rows)


def _study_rows(plans: list[Row]) -> Iterator[Row]:
    for plan in plans:
        bases = dict.fromkeys(cell["base_model"] for cell in plan["cells"])
        for base in bases:
            yield {
                **plan,
                "base_model": base,
                "trained_context": plan["base_contexts"].get(base),
                "base_note": plan.get("base_notes", {}).get(base),
                "match": plan.get("match", "tokens"),
                "arguments": shlex.join(plan.get("arguments", [plan["study"]])),
            }


def _cell_rows(plans: list[Row], holdings: Holdings) -> Iterator[Row]:
    installed = frozenset(METHODS.names())  # reads the plug-in folders, so do it once
    for plan in plans:
        for position, cell in enumerate(plan["cells"]):
            if cell.get("settled"):
                continue
            yield {
                **cell,
                "study": plan["study"],
                "position": position,
                **holdings.status(cell, plan["kinds"]),
                **_measured(cell["cell"], holdings),
                "family": _family(cell, holdings, installed),
                "learning_rate": _learning_rate(cell, holdings),
            }


def _learning_rate(cell: Row, holdings: Holdings) -> float | None:
    """Return the planned learning rate, or the chosen one once the choice is done."""
    choice = holdings.result(cell["choice"])
    if choice and choice["field"] == "learning_rate":
        return float(choice["value"])
    return None if cell["learning_rate"] is None else float(cell["learning_rate"])


def _trial_rows(plans: list[Row], holdings: Holdings) -> Iterator[Row]:
    for plan in plans:
        for choice in plan["choices"]:
            found = holdings.result(choice["choice"])
            for number, value in enumerate(choice["values"]):
                yield {
                    **choice,
                    "study": plan["study"],
                    "value": float(value),
                    "nll": found["nll"][number] if found else None,
                    "chosen": found["trial"] == number if found else None,
                }


def _search_rows(plans: list[Row], holdings: Holdings) -> Iterator[Row]:
    for plan in plans:
        for search in plan.get("searches", ()):
            found = holdings.result(search["search"])
            parameters = {k: v for k, v in found.get("parameters", {}).items() if v is not None}
            yield {
                **found,
                **search,
                "study": plan["study"],
                "parameters": canonical_json(parameters) if found else None,
            }


def _measured(short: str | None, holdings: Holdings) -> Row:
    result = holdings.result(short)
    kinds = ("measured", "predicted", "prompt_tokens")
    measured, predicted, prompt = (result.get(kind) or {} for kind in kinds)
    return {
        "tokens": measured.get("tokens"),
        "flops": measured.get("flops"),
        "predicted_tokens": predicted.get("tokens"),
        "predicted_flops": predicted.get("flops"),
        **{f"prompt_tokens_{what}": prompt.get(what) for what in ("mean", "min", "max")},
        "data": None if (read := result.get("data")) is None else ", ".join(read),
    }


def _family(cell: Row, holdings: Holdings, installed: Container[str]) -> str | None:
    record = holdings.records.get(cell["cell"] or "")
    method = record.spec.get("method") if record else None
    # A study may relabel a method, so read the registered name from the record.
    name = str(method["name"]) if isinstance(method, Mapping) else cell["method"]
    # A method from a user's own folder may not be installed on this machine.
    return METHODS.load(name).family if name in installed else None


def _artifact_rows(holdings: Holdings, environments: Mapping[str, str]) -> Iterator[Row]:
    for short, record in holdings.records.items():
        yield {
            **dict(record),
            "artifact": short,
            "folder": holdings.folders[short].relative_to(holdings.artifacts).as_posix(),
            "intact": short not in holdings.damage,
            "damage": holdings.damage.get(short),
            "num_files": len(record.files),
            "bytes": sum(entry.bytes for entry in record.files.values()),
            "started_at": _utc(record.started_at),
            "created_at": _utc(record.finished_at),
            "environment": environments[short],
            "spec": canonical_json(record.spec),
            "result": canonical_json(record.result),
            "execution": canonical_json(record.execution),
            "plugins": canonical_json(record.model_dump(include={"plugins"})["plugins"]),
        }


def _environment_rows(holdings: Holdings, environments: Mapping[str, str]) -> Iterator[Row]:
    found = {environments[short]: record.environment for short, record in holdings.records.items()}
    for digest, environment in sorted(found.items()):
        git = environment.get("git") or {}
        yield {
            **environment,
            "environment": digest,
            "git_commit": git.get("commit"),
            "git_dirty": git.get("dirty"),
            "accelerators": ", ".join(environment.get("accelerators", [])),
            "libraries": canonical_json(environment.get("libraries", {})),
            "switches": canonical_json(environment.get("switches", {})),
        }


def _verification_rows(store: Store) -> Iterator[Row]:
    for one in kept(store.home):
        row = {
            **one.model_dump(),
            "verified_at": _utc(one.verified_at),
            "committed_at": _utc(one.committed_at),
        }
        yield from ({**row, **metric} for metric in row["metrics"] or [{}])


def _read_parquet(path: Path, schema: pa.Schema, extended: pa.Schema | None = None) -> pa.Table:
    try:
        # There are many small files: threads, a file system object and a cast per file would cost
        # more time than reading the files.
        file = pq.ParquetFile(pa.BufferReader(path.read_bytes()))
        if extended and {*extended.names} <= {*file.schema_arrow.names}:
            schema = extended
        table = file.read(columns=schema.names, use_threads=False)
        if table.schema == schema:
            return table
        return table.select(schema.names).cast(schema)
    except _UNREADABLE as error:
        raise DataError(
            path.name,
            error,
            "a Parquet table with the columns of this file",
            "run the study again, which recomputes the cell",
        ) from error


def _with(table: pa.Table, **constants: Any) -> pa.Table:
    for name, value in constants.items():
        table = table.append_column(name, pa.repeat(value, table.num_rows))
    return table


def _joined(tables: list[pa.Table]) -> pa.Table:
    # Combine chunks: DuckDB takes twice as long to read thousands of small ones.
    if not tables:
        return pa.table({})
    # Only cells with controls have the columns of their scores.
    return pa.concat_tables(tables, promote_options="default").combine_chunks()


def _table(rows: Iterable[Row], name: str) -> pa.Table:
    """Return rows as a table with the columns of `name`; ignore other keys, such as a plan's."""
    found = list(rows)
    return pa.table({column: [row.get(column) for row in found] for column in _columns()[name]})


@cache
def _columns() -> dict[str, list[str]]:
    """Return the columns of each table of `sql/schema.sql`, by names such as "store.cell"."""
    with duckdb.connect(":memory:", config=OFFLINE) as connection:
        connection.execute((Path(__file__).parent / "sql/schema.sql").read_text(encoding="utf-8"))
        return dict(
            connection.execute(
                "SELECT schema_name || '.' || table_name, list(column_name ORDER BY column_index)"
                " FROM duckdb_columns() WHERE schema_name IN ('store', 'history') GROUP BY ALL"
            ).fetchall()
        )


def _utc(moment: str) -> datetime:
    return datetime.fromisoformat(moment).astimezone(UTC).replace(tzinfo=None)


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0]
