"""Findings of a study as sentences, each supported by a statistical test.

    with open_catalog(path) as connection:
        found = claims(connection, "toy")           # every claim, in report order
        expected = expectations(connection, "toy")  # each entry of `expects` with its outcomes

All numbers come from the views `paired_difference`, `effective_length`, `perplexity_agreement`,
`expectations` and `studies`; none is computed here. A claim says "is better than" only if
the view's verdict is `better`. An exploratory claim says "in this study". If a comparison is
undecided, the claim states the smallest detectable difference, if there is one.
`lce claims STUDY` prints the claims. Without a study it prints the view `claims`: each published
claim, with the outcomes of the comparisons that test it.
"""

from dashboards.claims.expectations import Expectation, counted, expectations
from dashboards.claims.found import Claim, Topic, claims, told_apart

__all__ = ["Claim", "Expectation", "Topic", "claims", "counted", "expectations", "told_apart"]
