"""What a study has found, as sentences that its tests support.

    with open_catalog(path) as connection:
        found = claims(connection, "toy")       # every claim, in the order of a report
        first = headline(found)                 # at most three, for a first screen
        at = firsts(found, "toy_llama", 128)    # who is best at each length beyond the trained one
    said = answers(connection, "toy")       # each line of the hypothesis, and what bears on it

All of it is read from the views `paired_difference`, `effective_length`, `perplexity_agreement` and
`studies`. A claim says `beats` only where the view's verdict says `better`; otherwise what the
study could have seen, or that it has too few samples to see anything. No number is computed here.
`python -m dashboards.claims` prints them; `lce claims STUDY` runs it.
"""

from __future__ import annotations

from dashboards.claims.claim import Claim, Topic
from dashboards.claims.found import claims, firsts, headline, told_apart
from dashboards.claims.hypothesis import Answer, answers

__all__ = ["Answer", "Claim", "Topic", "answers", "claims", "firsts", "headline", "told_apart"]
