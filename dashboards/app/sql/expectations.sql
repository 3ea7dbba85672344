-- Comparisons that the study file predicts, with their outcomes; entries count from 1.
SELECT
    base_model,
    entry + 1 AS entry,
    text,
    claim,
    benchmark,
    eval_length,
    variant_label(method, frozen) AS variant,
    variant_label(other_method, other_frozen) AS other_variant,
    outcome,
    difference,
    ci_low,
    ci_high,
    p_adjusted,
    family,
    num_needed,
    blocked_by + 1 AS blocked_by,
    withdrawn_after
FROM expectations
WHERE study = $study AND entry IS NOT NULL
ORDER BY entry, other_variant, eval_length
