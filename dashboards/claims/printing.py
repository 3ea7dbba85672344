"""Print the findings of a study, or the published claims with the outcomes of all studies."""

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from dashboards.claims import Claim, claims, told_apart
from dashboards.claims.expectations import outcomes_in_words
from dashboards.claims.summary import Summary, summaries
from dashboards.claims.wording import CORRELATION, EFFECTIVE_CONTEXT, EXPLAINED, OUTCOMES
from dashboards.contents import Row, opened, read
from lce_core.errors import SpecError
from lce_core.terminal import WIDTH

MOST_ITEMS = 10
MOST_ENTRIES = 5
NARROWER = "--method, --against,\n--benchmark, --length"


def printed_claims(
    catalog: Path, study: str | None, chosen: Mapping[str, Any], *, everything: bool, as_json: bool
) -> str:
    """Return the output of `lce claims`; without a study, the published claims of all."""
    with opened(catalog) as connection:
        if study is None:
            rows = read(connection, "FROM claims")
            return json.dumps(rows, indent=1) if as_json else "\n".join(_published(rows))
        found = _chosen(claims(connection, study), chosen)
        if as_json:
            return json.dumps([asdict(one) for one in found], indent=1)
        if chosen:
            return "\n".join(_list(found, everything=everything))
        return "\n".join(_all(found, summaries(connection, study), everything=everything))


def _chosen(found: list[Claim], chosen: Mapping[str, Any]) -> list[Claim]:
    for option, value in chosen.items():
        is_method = option in ("method", "against")
        field = "method" if is_method else "eval_length" if option == "length" else option
        known = ", ".join(map(str, sorted({getattr(one, field) for one in found} - {None})))
        found = [
            one
            for one in found
            if (_is_about(one, value) if is_method else getattr(one, field) == value)
        ]
        if not found:
            what = (
                f"a method with claims: {known or 'none yet'}"
                if is_method
                else f"one with such claims: {known or 'none'}"
            )
            raise SpecError(f"--{option}", repr(value), what, "give one of these")
    return found


def _is_about(claim: Claim, name: str) -> bool:
    """Return True for a method ("yarn") or tuned variant ("yarn tuned", "yarn-tuned")."""
    method = name.removesuffix("tuned").rstrip(" -") if name.endswith("tuned") else name
    return claim.mentions(method, None if method == name else False)


def _published(rows: list[Row]) -> Iterator[str]:
    if not rows:
        yield "no study in this home tests a published claim (`claim` of an entry of `expects`)"
    for claim, group in groupby(rows, lambda row: row["claim"]):
        yield textwrap.fill(claim, WIDTH)
        yield from (
            f"  {row['study']} ({row['base_model']}): {outcomes_in_words(row)}" for row in group
        )


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
