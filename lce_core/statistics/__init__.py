"""Comparisons and their uncertainty: functions from arrays of scores to estimates with intervals.

Every function is pure and independent of benchmarks, methods and the store. Dependent scores
(questions on one article, overlapping windows) are marked by clusters, which are documents or
prompts. No interval or test counts two members of a cluster as two observations.

  estimates         means and accuracies with the intervals that cells record with their scores
  contrasts         differences of two methods, generalised to other training seeds and prompts
  mcnemar           exact test of two methods that answer prompts right or wrong
  holm              adjusted p-values of a family of comparisons
  clustered         mean over documents
  seeds             mean over seeds and prompts, generalised to seeds that were not run
  effective_length  longest context at which a score still reaches a threshold
  power             smallest difference that a given number of prompts or documents can detect
  rank_agreement    agreement of two scores on the order of methods

Cells record bootstrap percentile intervals, which with ten documents cover 90 % instead of 95 %.
Claims use the other modules, whose intervals also hold with few documents. A cell's identity
contains the definition of its intervals (`estimates.INTERVALS`).
"""
