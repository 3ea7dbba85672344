-- Comparisons of each method with the base model at its longest evaluated length within its trained
-- context, which every study makes.
SELECT
    base_model, method, frozen, benchmark, eval_length, margin, is_ratio, outcome, family, verdict,
    generalises_to, num_needed,
    difference / CASE WHEN is_ratio THEN other_value ELSE 1 END AS difference,
    ci_low / CASE WHEN is_ratio THEN other_value ELSE 1 END AS ci_low,
    ci_high / CASE WHEN is_ratio THEN other_value ELSE 1 END AS ci_high
FROM expectations
WHERE study = $study AND entry IS NULL AND outcome <> 'not measured'
