"""Claims from the views of the catalog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dashboards.claims import wording
from dashboards.claims.claim import Claim, Verdict
from lce_core.errors import SpecError, did_you_mean

if TYPE_CHECKING:
    import duckdb

Row = dict[str, Any]
Method = tuple[str, bool]

BASE: Method = ("none", True)
PERPLEXITY = "perplexity"
_QUERIES = {
    "studies": "FROM studies WHERE study = $study",
    "pairs": "FROM paired_difference WHERE study = $study",
    "lengths": "FROM effective_length WHERE study = $study",
    "orders": "FROM perplexity_agreement WHERE study = $study",
}
_FIRST = (PERPLEXITY, "passkey", "needle", "ruler", "longbench")
"""Benchmarks in the order of the papers' overviews; others follow by name."""


_UNDECIDED = ("the same", "no difference found", "too few")


@dataclass(frozen=True)
class Views:
    """Rows of one study."""

    studies: list[Row]
    pairs: list[Row]
    lengths: list[Row]
    orders: list[Row]

    def trained(self, base_model: str) -> int | None:
        """Tokens of the base model's trained context."""
        (length,) = (s["trained_context"] for s in self.studies if s["base_model"] == base_model)
        return None if length is None else int(length)

    def target(self, base_model: str) -> int:
        """Tokens that the study's methods extend to."""
        (length,) = (s["target_context"] for s in self.studies if s["base_model"] == base_model)
        return int(length)


def claims(connection: duckdb.DuckDBPyConnection, study: str) -> list[Claim]:
    """Every claim of a study: by base model, benchmark and length, who is best, then pair by pair.

    Args:
      connection: the catalog, as `catalog.queries.open_catalog` opens it.
      study: name of a study in it.

    Raises:
      SpecError: the catalog does not hold the study, or was made by an earlier version.
    """
    views = read_views(connection, study)
    found = _marked([*_pairs(views), *_best(views), *_orders(views), *_lengths(views)], views)
    place = {name: number for number, name in enumerate(_FIRST)}
    topics = ("best", "base", "order", "length", "pair")
    return sorted(
        found,
        key=lambda one: (
            one.base_model,
            place.get(one.benchmark, len(place)),
            one.benchmark,
            one.eval_length or 0,
            topics.index(one.topic),
        ),
    )


def headline(found: Sequence[Claim]) -> list[Claim]:
    """At most three claims of each base model that answer what a study is for.

    At the target context: who is best at perplexity, who at the benchmark with the most samples,
    and whether the first predicts the second.
    """
    chosen = []
    for base_model in dict.fromkeys(one.base_model for one in found):
        own = [one for one in found if one.base_model == base_model and one.at_target]
        best = [one for one in own if one.topic == "best"]
        losses = [one for one in best if one.benchmark == PERPLEXITY]
        answered = [one for one in best if one.benchmark not in (PERPLEXITY, "nll_by_position")]
        second = max(answered, key=lambda one: one.num_samples or 0, default=None)
        orders = [
            one
            for one in own
            if one.topic == "order" and second is not None and one.benchmark == second.benchmark
        ]
        chosen += [*losses[:1], *([second] if second else []), *orders[:1]]
    return chosen


def read_views(connection: duckdb.DuckDBPyConnection, study: str) -> Views:
    """The views that claims rest on.

    Raises:
      SpecError: the catalog does not hold the study, or was made by an earlier version.
    """
    import duckdb

    known = [row["study"] for row in _rows(connection, "SELECT DISTINCT study FROM studies", {})]
    if study not in known:
        raise SpecError("study", repr(study), "a study of the catalog", did_you_mean(study, known))
    try:
        return Views(
            **{name: _rows(connection, sql, {"study": study}) for name, sql in _QUERIES.items()}
        )
    except duckdb.CatalogException as error:
        raise SpecError(
            "catalog",
            str(error).splitlines()[0],
            "a catalog with comparisons",
            "run `lce rebuild catalog`: an earlier version made this one",
        ) from None


def _marked(found: list[Claim], views: Views) -> list[Claim]:
    """With those that are at the target."""
    longest: dict[tuple[str, str], int] = {}
    for one in found:
        length = one.eval_length or 0
        if length <= views.target(one.base_model):
            key = one.base_model, one.benchmark
            longest[key] = max(length, longest.get(key, 0))
    return [
        replace(one, at_target=one.eval_length == longest.get((one.base_model, one.benchmark), 0))
        for one in found
    ]


def _rows(connection: duckdb.DuckDBPyConnection, sql: str, values: Row) -> list[Row]:
    found = connection.execute(sql, values)
    columns = [column[0] for column in found.description or ()]
    return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]


def _pairs(views: Views) -> Iterator[Claim]:
    """Each pair once, from the better side; without a better one, as the rows come."""
    several = _several(views.pairs, "tasks")
    seen = set()
    for row in views.pairs:
        methods = frozenset([_first(row), _other(row)])
        key = (row["holm_family"], row["base_model"], row["profile"], methods)
        ahead = (row["difference"] > 0) == row["higher_is_better"]
        if key in seen or row["verdict"] == "worse":
            continue
        if row["verdict"] == "not in every seed" and not ahead:
            continue
        if row["verdict"] in _UNDECIDED and _first(row) == BASE:
            continue  # said from the method's side
        seen.add(key)
        yield _pair(row, views.trained(row["base_model"]), row["benchmark"] in several)


def _pair(row: Row, trained: int | None, several: bool) -> Claim:
    return Claim(
        "base" if BASE in (_first(row), _other(row)) else "pair",
        row["verdict"],
        f"{wording.at(row['eval_length'], trained)}, {_said(row, several)}",
        row["base_model"],
        row["benchmark"],
        row["eval_length"],
        row["task"],
        *_first(row),
        *_other(row),
        difference=row["difference"],
        low=row["ci_low"],
        high=row["ci_high"],
        value=row["value"],
        p_holm=row["p_holm"],
        holm_family=row["holm_family"],
        num_samples=row["num_clusters"],
        num_seeds=row["num_seeds"],
        smallest_detectable=row["smallest_detectable"],
    )


def _said(row: Row, several: bool) -> str:
    """What was found between two methods."""
    ours, theirs = (wording.label(*one) for one in (_first(row), _other(row)))
    what, p_holm = wording.measured(row, several), wording.p_value(row["p_holm"])
    seeds, seen = wording.seeds(row), row["smallest_detectable"]
    gap = wording.estimate(row["difference"], row["ci_low"], row["ci_high"])
    could_see = "" if seen is None else f"; the study could see {wording.number(seen)}"
    if row["verdict"] == "better":
        return f"{ours} beats {theirs} on {what} by {_ahead(row)}, {seeds}, {p_holm}"
    if row["verdict"] == "not in every seed":
        spread = sorted((row["lowest"], row["highest"]), reverse=row["difference"] < 0)
        lowest, highest = (abs(one) if one * row["difference"] > 0 else -abs(one) for one in spread)
        return (
            f"{ours} is ahead of {theirs} on {what} by {_ahead(row)}, {p_holm}, but not in each of"
            f" {seeds} ({wording.number(lowest, highest)} to {wording.number(highest, lowest)})"
        )
    if row["verdict"] == "the same":
        samples = f"all {row['num_clusters']} samples"
        return f"{ours} and {theirs} score the same on {samples} of {what}{could_see}"
    if row["verdict"] == "too few":
        return (
            f"{row['num_clusters']} independent samples of {what} are too few to compare {ours}"
            f" with {theirs}: {gap}, {seeds}"
        )
    return (
        f"no difference found between {ours} and {theirs} on {what}{could_see}"
        f" ({gap}, {seeds}, {p_holm})"
    )


def _ahead(row: Row) -> str:
    """By how much, whichever direction is better."""
    low, high = sorted((abs(row["ci_low"]), abs(row["ci_high"])))
    return wording.estimate(abs(row["difference"]), low, high)


def _best(views: Views) -> Iterator[Claim]:
    """Of the methods that were asked the tasks that most pairs share."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in views.pairs:
        key = (row["base_model"], row["benchmark"], row["profile"], row["eval_length"])
        groups.setdefault(key, []).append(row)
    for rows in groups.values():
        counts: dict[str, int] = {}
        for row in rows:
            counts[row["tasks"]] = counts.get(row["tasks"], 0) + 1
        # All tasks together, where two methods share them; else the task that most share.
        usual = max(counts, key=lambda tasks: (tasks.count(","), counts[tasks]))
        yield _leader(
            [row for row in rows if row["tasks"] == usual],
            views.trained(rows[0]["base_model"]),
            len(counts) > 1,
        )


def _leader(rows: list[Row], trained: int | None, several: bool) -> Claim:
    up = rows[0]["higher_is_better"]
    best = max(rows, key=lambda row: row["value"] if up else -row["value"])
    leader = _first(best)
    own = [row for row in rows if _first(row) == leader]
    by_verdict: dict[str, list[Row]] = {}
    for row in own:
        by_verdict.setdefault(row["verdict"], []).append(row)
    beaten = len(by_verdict.get("better", ()))
    same = by_verdict.get("the same", [])
    alike = [row for row in own if row["verdict"] in ("no difference found", "not in every seed")]
    unknown = by_verdict.get("too few", [])
    level = [row for row in own if row["difference"] == 0 and row["verdict"] != "the same"]
    where = wording.at(best["eval_length"], trained)
    head = (
        f"{where}, {_first_of(own, same, level)} on {wording.measured(best, several)}"
        f" ({wording.number(best['value'])})"
    )
    they = "each" if len(same) > wording.NAMED else "it"
    limits = [r["smallest_detectable"] for r in alike if r["smallest_detectable"] is not None]
    parts = []
    if beaten:
        parts.append(_beats_all(own) if beaten == len(own) else f"{they} beats {beaten}")
    if alike:
        could_see = f"; the study could see {wording.number(max(limits))}" if limits else ""
        parts.append(f"no sure difference was found to {wording.listed(_others(alike))}{could_see}")
    if unknown:
        few = max(row["num_clusters"] for row in unknown)
        number = len(unknown)
        whom = "any other" if number == len(own) else f"{number} other{'s'[: number > 1]}"
        parts.append(f"{few} independent samples are too few to compare it with {whom}")
    verdict: Verdict = (
        "better"
        if beaten == len(own)
        else "too few"
        if len(unknown) == len(own)
        else "the same"
        if len(same) == len(own)
        else "no difference found"
    )
    return Claim(
        "best",
        verdict,
        ": ".join([head, *(["; ".join(parts)] if parts else [])]),
        best["base_model"],
        best["benchmark"],
        best["eval_length"],
        best["task"],
        *leader,
        value=best["value"],
        num_samples=max(row["num_clusters"] for row in own),
        num_seeds=best["num_seeds"],
        smallest_detectable=max(limits, default=None),
    )


def _first_of(own: Sequence[Row], same: Sequence[Row], level: Sequence[Row]) -> str:
    """Who is first, and who is so with it: the same on every prompt, or of the same score."""
    leader, number = wording.label(*_first(own[0])), len(own) + 1
    if len(same) > wording.NAMED:
        others = f", {wording.listed(_others(level))} level with them" if level else ""
        return f"{len(same) + 1} of {number} methods, {leader} among them{others}, are first"
    beside = [
        f"{how} {wording.listed(_others(rows))}"
        for how, rows in (("like", same), ("level with", level))
        if rows
    ]
    return f"{', '.join([leader, *beside])}{',' * bool(beside)} is first of {number}"


def _beats_all(rows: Sequence[Row]) -> str:
    """With the one that comes next, and by how much."""
    closest = min(rows, key=lambda row: abs(row["difference"]))
    (name,) = _others([closest])
    others = f"all others, {name} as the next" if len(rows) > 1 else name
    how_sure = f"{wording.seeds(closest)}, {wording.p_value(closest['p_holm'])}"
    return f"it beats {others} by {_ahead(closest)}, {how_sure}"


def _lengths(views: Views) -> Iterator[Claim]:
    several = _several(views.lengths, "task")
    for row in views.lengths:
        what = wording.measured(
            {"benchmark": row["benchmark"], "tasks": row["task"]}, row["benchmark"] in several
        )
        name = wording.label(row["method"], row["frozen"])
        bar = ">=" if row["higher_is_better"] else "<="
        held = f"up to {row['tokens']:,} tokens" if row["tokens"] else "at no length"
        yield Claim(
            "length",
            "holds",
            f"{name} holds {what} {bar} {wording.number(row['threshold'])} {held}"
            f" [{row['ci_low']:,}, {row['ci_high']:,}], of {row['longest']:,} evaluated",
            row["base_model"],
            row["benchmark"],
            task=row["task"],
            method=row["method"],
            frozen=row["frozen"],
            value=row["tokens"],
            low=row["ci_low"],
            high=row["ci_high"],
            num_seeds=row["num_seeds"],
        )


def _orders(views: Views) -> Iterator[Claim]:
    for row in views.orders:
        if row["kendall_low"] is None or row["p_holm"] is None:
            continue  # too few methods, or all alike
        who = "methods" if row["methods"] == "all" else "methods with exact attention"
        where = wording.at(row["eval_length"], views.trained(row["base_model"]))
        what = row["benchmark"].replace("_", " ")
        sign = "better" if row["kendall"] > 0 else "worse"
        is_order = row["p_holm"] <= 0.05 and row["kendall_low"] * row["kendall_high"] > 0
        told = (
            f"lower perplexity goes with {sign} {what} among"
            if is_order
            else f"perplexity and {what} were not found to order methods alike among"
        )
        yield Claim(
            "order",
            "order" if is_order else "no order found",
            f"{where}, {told} {row['num_methods']} {who}: Kendall"
            f" {wording.estimate(row['kendall'], row['kendall_low'], row['kendall_high'])},"
            f" {wording.p_value(row['p_holm'])}",
            row["base_model"],
            row["benchmark"],
            row["eval_length"],
            value=row["kendall"],
            low=row["kendall_low"],
            high=row["kendall_high"],
            p_holm=row["p_holm"],
        )


def _first(row: Row) -> Method:
    return row["method"], row["frozen"]


def _other(row: Row) -> Method:
    return row["other_method"], row["other_frozen"]


def _others(rows: Sequence[Row]) -> list[str]:
    return [wording.label(*_other(row)) for row in rows]


def _several(rows: Sequence[Row], column: str) -> set[str]:
    """Benchmarks that have more than one choice of tasks in that column."""
    tasks: dict[str, set[str]] = {}
    for row in rows:
        tasks.setdefault(row["benchmark"], set()).add(row[column])
    return {name for name, found in tasks.items() if len(found) > 1}
