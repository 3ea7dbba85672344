"""Findings of a study as sentences, each supported by a statistical test.

    with open_catalog(path) as connection:
        found = claims(connection, "toy")       # every claim, in report order
        first = headline(found)                 # at most three, for the first screen
        at = firsts(found, "toy_llama", 128)    # best methods at each length beyond 128
    said = answers(connection, "toy")       # each line of the hypothesis with its claims

All numbers come from the views `paired_difference`, `effective_length`, `perplexity_agreement` and
`studies`; none is computed here. A claim says `beats` only if the view's verdict is `better`.
Otherwise the claim states the smallest detectable difference, or that the samples are too few.
`python -m dashboards.claims` prints the claims; `lce claims STUDY` runs it.
"""

from __future__ import annotations

from dashboards.claims.claim import Claim, Topic
from dashboards.claims.found import claims, firsts, headline, told_apart
from dashboards.claims.hypothesis import Answer, answers

__all__ = ["Answer", "Claim", "Topic", "answers", "claims", "firsts", "headline", "told_apart"]
