-- Comparisons of all methods, one row per pair, benchmark and length, over the benchmark's tasks.
FROM paired_difference
SELECT base_model, method, frozen, other_method, other_frozen, benchmark, profile, eval_length,
    higher_is_better, value, other_value, difference, ci_low, ci_high, p_adjusted, family, verdict
WHERE study = $study AND (method, frozen) < (other_method, other_frozen)
QUALIFY task IS NULL
    OR NOT bool_or(task IS NULL) OVER (PARTITION BY base_model, benchmark, profile)
ORDER BY benchmark, profile, eval_length
