"""Comparisons and their uncertainty: functions from arrays of scores to estimates with intervals.

Dependent scores (questions on one article, overlapping windows) are marked by clusters, which are
documents or prompts. No interval or test counts two members of a cluster as two observations.

Cells record bootstrap percentile intervals (`estimates`), which with ten documents cover 90 %
instead of 95 %. Claims use the other modules, whose intervals also hold with few documents.
"""
