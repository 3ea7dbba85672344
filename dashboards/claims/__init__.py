"""Findings of a study as sentences, each supported by a statistical test.

    with open_catalog(path) as connection:
        found = claims(connection, "toy")       # every claim, in report order
        first = headline(found)                 # at most three, for the first screen
        at = firsts(found, "toy_llama", 128)    # best methods at each length beyond 128
    expected = expectations(connection, "toy")  # each entry of `expects` with its outcomes

All numbers come from the views `paired_difference`, `effective_length`, `perplexity_agreement`,
`expectations` and `studies`; none is computed here. A claim says "is better than" only if
the view's verdict is `better`. If there is no significant difference, the claim states the smallest
detectable one, or that the samples are too few.
`python -m dashboards.claims` prints the claims; `lce claims STUDY` runs it. Without a study it
prints the view `claims`: each published claim, with the outcomes of the comparisons that test it.
"""

from __future__ import annotations

from dashboards.claims.claim import Claim, Topic
from dashboards.claims.expectations import Expectation, counted, expectations
from dashboards.claims.found import claims, firsts, headline, told_apart

__all__ = [
    "Claim",
    "Expectation",
    "Topic",
    "claims",
    "counted",
    "expectations",
    "firsts",
    "headline",
    "told_apart",
]
