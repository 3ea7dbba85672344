-- Comparisons that the study file predicts (entries count from 1), then those with the base model
-- within its trained context, with their outcomes.
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
WHERE study = $study
ORDER BY entry, other_variant, eval_length
