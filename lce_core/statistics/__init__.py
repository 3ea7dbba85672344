"""Comparisons and their uncertainty: arrays of scores in, estimates with intervals out.

Every function is pure and knows no benchmark, method or store. Scores that are not independent
(questions on one article, overlapping windows) are said to be so by their clusters, which are
documents or prompts; no interval or test takes two members of a cluster for two observations.

  estimates         means and accuracies with the intervals that cells record with their scores
  paired            difference of two methods on the same prompts, with interval and p-value
  pair_tests        the tests behind it: exact McNemar, Wilcoxon signed-rank
  holm              p-values of a family of comparisons
  clustered         mean over documents
  seeds             mean over seeds and prompts, for seeds that were not run
  effective_length  longest context at which a score still holds
  power             smallest difference that so many prompts or documents can show
  rank_agreement    whether two scores order methods alike

What cells record are percentiles of a bootstrap, which cover 90 % instead of 95 with ten documents.
They stay as they are, since another interval would make every stored result an earlier version's;
claims rest on the other modules, which are right with few documents too.
"""
