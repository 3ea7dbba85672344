-- Scores that differ significantly from the base model's on the same prompts: one row per task and
-- length; task is NULL for a mean over several tasks. Benchmarks with two profiles are left out,
-- because a score of the tables could mean either.
FROM paired_difference
SELECT base_model, method, frozen, benchmark, task, eval_length, verdict, p_adjusted
WHERE study = $study AND other_method = 'none' AND other_frozen
QUALIFY count(*) OVER (
        PARTITION BY base_model, method, frozen, benchmark, task, eval_length
    ) = 1
    AND p_adjusted < 0.05 AND verdict IN ('better', 'worse')
