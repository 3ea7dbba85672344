-- Comparisons that the study file predicts, with their outcomes.
SELECT
    base_model,
    text,
    benchmark,
    eval_length,
    variant_label(method, frozen) AS variant,
    variant_label(other_method, other_frozen) AS other_variant,
    difference,
    ci_low,
    ci_high,
    p_adjusted,
    outcome
FROM expectations
WHERE study = $study
ORDER BY entry, other_variant, eval_length
