"""Print the findings of a study: `python -m dashboards.claims`. `lce claims` runs it.

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
from pathlib import Path

from catalog.queries import as_store_error, open_catalog
from dashboards.claims import (
    Claim,
    Expectation,
    claims,
    counted,
    expectations,
    headline,
    told_apart,
)
from dashboards.claims.wording import CORRELATION, EFFECTIVE_CONTEXT, EXPLAINED
from lce_core.errors import SpecError
from lce_core.store.unforeseen import explained
from lce_core.terminal import WIDTH, guard_terminal

ORDER = {"best": "Best", "order": "Perplexity and downstream scores"}
"""Topics printed if no method is given, in this order, with their headings."""


def main() -> int:
    """Print the claims that the command line asks for; return the exit code 0, 2 or 3."""
    guard_terminal()
    parser = argparse.ArgumentParser(prog="python -m dashboards.claims")
    parser.add_argument("--catalog", type=Path, required=True)
    parser.add_argument("--study", required=True)
    parser.add_argument("--method")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    try:
        with open_catalog(arguments.catalog) as connection:
            found = claims(connection, arguments.study)
            expected = expectations(connection, arguments.study)
            chosen = found if arguments.method is None else _of(found, arguments.method)
    except Exception as error:  # noqa: BLE001 - no state of the catalog may end in a traceback
        error_text = explained(as_store_error(error, arguments.catalog), arguments.catalog.parent)
        sys.stderr.write(f"lce: {error_text}\n")
        return 2 if isinstance(error_text, SpecError) else 3
    if arguments.json:
        sys.stdout.write(json.dumps([asdict(one) for one in chosen], indent=1) + "\n")
    else:
        lines = (
            _all(chosen, expected)
            if arguments.method is None
            else [
                *(_item(one.text) for one in told_apart(chosen)),
                *textwrap.wrap(f"{EXPLAINED} {EFFECTIVE_CONTEXT}", WIDTH),
            ]
        )
        sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _of(found: list[Claim], method: str) -> list[Claim]:
    """Return the claims that mention the method; raise SpecError if there are none."""
    chosen = [one for one in found if one.mentions(method)]
    if not chosen:
        known = sorted({one.method for one in found if one.method})
        raise SpecError(
            "--method", repr(method), f"a method with claims: {', '.join(known) or 'none yet'}",
            "give one of these",
        )  # fmt: skip
    return chosen


def _all(found: list[Claim], expected: list[Expectation]) -> Iterator[str]:
    if not found:
        yield "no claims yet: no two methods have results on the same prompts"
    yield from _part("In short", headline(found))
    if expected:
        yield f"Expected: {counted(expected)}"
    for entry in expected:
        text = f"{entry.text} ({entry.summary})"
        yield textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="  ")
        yield from (_item(one.text, 4) for one in entry.comparisons)
    for topic, heading in ORDER.items():
        yield from _part(heading, told_apart([one for one in found if one.topic == topic]))
    if found:
        yield from textwrap.wrap(EXPLAINED, WIDTH)
    if any(one.topic == "order" for one in found):
        yield from textwrap.wrap(CORRELATION, WIDTH)
    yield "Pairs of a method with the others, and its effective context: --method NAME"


def _part(heading: str, found: Iterable[Claim]) -> Iterator[str]:
    items = [_item(one.text) for one in found]
    yield from [heading, *items] if items else []


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
