-- Where a method surely differs from the base model on the same prompts: one row a task and length,
-- task NULL for a mean over several. Two profiles of a benchmark have no one answer.
FROM paired_difference
SELECT base_model, method, frozen, benchmark, task, eval_length, verdict, p_holm
WHERE study = $study AND other_method = 'none' AND other_frozen
QUALIFY count(*) OVER (
        PARTITION BY base_model, method, frozen, benchmark, task, eval_length
    ) = 1
    AND p_holm < 0.05 AND verdict IN ('better', 'worse')
