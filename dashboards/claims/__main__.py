"""Print the findings of a study, or the published claims with the outcomes of all studies.

`lce claims` runs this module: `python -m dashboards.claims`.

Exit codes are those of `lce`: 2, with one message, if the request is wrong, 3 if the catalog
is damaged.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from catalog.queries import as_store_error, open_catalog
from dashboards.claims import (
    Claim,
    claims,
    told_apart,
)
from dashboards.claims.expectations import outcomes_in_words
from dashboards.claims.summary import Summary, summaries
from dashboards.claims.wording import CORRELATION, EFFECTIVE_CONTEXT, EXPLAINED, OUTCOMES
from dashboards.contents import Row, read
from lce_core.errors import SpecError
from lce_core.store.failures import explained
from lce_core.terminal import WIDTH, guard_terminal

if TYPE_CHECKING:
    import duckdb

MOST_ITEMS = 10
"""Claims printed without --all, so that they fit a screen."""
MOST_ENTRIES = 5
"""Expectations, and reasons to distrust, that are printed without --all."""
NARROWER = "--method, --against,\n--benchmark, --length"


def main() -> int:
    """Print the claims that the command line asks for; return the exit code 0, 2 or 3."""
    guard_terminal()
    parser = argparse.ArgumentParser(prog="python -m dashboards.claims")
    parser.add_argument("--catalog", type=Path, required=True)
    parser.add_argument("--study")
    parser.add_argument("--method")
    parser.add_argument("--against")
    parser.add_argument("--benchmark")
    parser.add_argument("--length", type=int)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    try:
        with open_catalog(arguments.catalog) as connection:
            output = _printed(connection, arguments)
    except Exception as error:  # noqa: BLE001 - no state of the catalog may end in a traceback
        error_text = explained(as_store_error(error, arguments.catalog), arguments.catalog.parent)
        sys.stderr.write(f"lce: {error_text}\n")
        return 2 if isinstance(error_text, SpecError) else 3
    sys.stdout.write(f"{output}\n")
    return 0


def _printed(connection: duckdb.DuckDBPyConnection, arguments: argparse.Namespace) -> str:
    study = arguments.study
    if study is None:
        rows = read(connection, "FROM claims")
        return json.dumps(rows, indent=1) if arguments.json else "\n".join(_published(rows))
    found = claims(connection, study)
    chosen = _chosen(found, arguments)
    if arguments.json:
        return json.dumps([asdict(one) for one in chosen], indent=1)
    if chosen is found:
        lines = _all(found, summaries(connection, study), everything=arguments.all)
    else:
        lines = _list(chosen, everything=arguments.all)
    return "\n".join(lines)


def _chosen(found: list[Claim], arguments: argparse.Namespace) -> list[Claim]:
    """Return the claims that the options select; `found` itself if there is no such option."""
    for option in ("method", "against"):
        if name := getattr(arguments, option):
            found = _of(found, name, f"--{option}")
    for option, field in (("benchmark", "benchmark"), ("length", "eval_length")):
        if (value := getattr(arguments, option)) is not None:
            known = {getattr(one, field) for one in found} - {None}
            found = [one for one in found if getattr(one, field) == value]
            if not found:
                expected = ", ".join(map(str, sorted(known))) or "none"
                raise SpecError(
                    f"--{option}", repr(value), f"one with such claims: {expected}",
                    "give one of these",
                )  # fmt: skip
    return found


def _published(rows: list[Row]) -> Iterator[str]:
    """Yield each published claim with a line per study and base model."""
    if not rows:
        yield "no study in this home tests a published claim (`claim` of an entry of `expects`)"
    for claim, group in groupby(rows, lambda row: row["claim"]):
        yield textwrap.fill(claim, WIDTH)
        yield from (
            f"  {row['study']} ({row['base_model']}): {outcomes_in_words(row)}" for row in group
        )


def _of(found: list[Claim], name: str, option: str = "--method") -> list[Claim]:
    """Return the claims that mention a method or variant; raise SpecError if there are none.

    Args:
      name: "yarn" for both variants, or "yarn tuned" or "yarn-tuned".
      option: the option that gave the name, for the error.
    """
    method = name.removesuffix("tuned").rstrip(" -") if name.endswith("tuned") else name
    chosen = [one for one in found if one.mentions(method, None if method == name else False)]
    if not chosen:
        known = sorted({one.method for one in found if one.method})
        raise SpecError(
            option, repr(name), f"a method with claims: {', '.join(known) or 'none yet'}",
            "give one of these",
        )  # fmt: skip
    return chosen


def _list(chosen: list[Claim], *, everything: bool) -> Iterator[str]:
    items = [_item(one.text) for one in told_apart(chosen)]
    yield from items if everything else items[:MOST_ITEMS]
    if everything:
        yield from textwrap.wrap(f"{EXPLAINED} {EFFECTIVE_CONTEXT}", WIDTH)
    elif len(items) > MOST_ITEMS:
        yield f"and {len(items) - MOST_ITEMS:,} more: {NARROWER}, --all"


def _all(found: list[Claim], study: list[Summary], *, everything: bool) -> Iterator[str]:
    for one in study:
        if len(study) > 1:
            yield f"{one.base_model}:"
        yield from _summary(one, everything=everything)
    if not everything:
        yield f"Everything: --all; single comparisons: {NARROWER}"
        return
    yield from _part(
        "Perplexity and downstream scores",
        [one.text for one in told_apart([one for one in found if one.topic == "order"])],
    )
    yield from textwrap.wrap(f"{OUTCOMES} {EXPLAINED} {CORRELATION}", WIDTH)
    yield "Pairs of a method with the others, and its effective context: --method NAME"


def _summary(one: Summary, *, everything: bool) -> Iterator[str]:
    """Yield one screen: outcomes, recommended methods, what to distrust, and the cost."""
    for sentence, entries in one.outcomes():
        yield _filled(sentence)
        is_hypothesis = entries == one.hypothesis
        most = len(entries) if everything else MOST_ENTRIES * is_hypothesis
        for entry in entries[:most]:
            yield _item(entry.line)
            if everything:
                yield from (_item(comparison.text, 4) for comparison in entry.comparisons)
        if entries[most:]:
            yield f"  and {len(entries) - most} more: --all"
    yield from map(_filled, one.recommended())
    doubts = list(one.distrust())
    most = len(doubts) if everything else MOST_ENTRIES
    yield from _part("What to distrust:", doubts[:most])
    if doubts[most:]:
        yield f"  and {len(doubts) - most} more: --all"
    yield from textwrap.wrap(one.total_cost(), WIDTH)


def _part(heading: str, sentences: Iterable[str]) -> Iterator[str]:
    items = [_item(one) for one in sentences]
    yield from [heading, *items] if items else []


def _filled(sentence: str) -> str:
    return textwrap.fill(sentence, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _item(text: str, indent: int = 2) -> str:
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=" " * indent + "- ",
        subsequent_indent=" " * (indent + 2),
        break_on_hyphens=False,
    )


if __name__ == "__main__":
    sys.exit(main())
