-- Each tuned method at the common value of the tuned setting and at its own best value, with ranks
-- among these methods and the verdict on the difference.
WITH pairs AS (
    FROM trials
    SELECT base_model, method, common_method, common_value, value AS own_value
    WHERE study = $study AND chosen
),
verdicts AS (
    FROM paired_difference
    SELECT base_model, method, frozen, other_method, other_frozen, benchmark, eval_length,
        any_value(verdict) AS verdict
    WHERE study = $study
    GROUP BY ALL
)
SELECT
    p.base_model, b.benchmark, b.eval_length, p.common_method AS method,
    p.common_value, c.value AS common_score,
    rank() OVER (
        PARTITION BY p.base_model, b.benchmark, b.eval_length
        ORDER BY best_first(c.value, c.higher_is_better)
    ) AS common_rank,
    p.own_value, b.value AS own_score,
    rank() OVER (
        PARTITION BY p.base_model, b.benchmark, b.eval_length
        ORDER BY best_first(b.value, b.higher_is_better)
    ) AS own_rank,
    d.verdict
FROM pairs p
JOIN benchmark_by_length b
    ON b.study = $study AND b.base_model = p.base_model AND b.method = p.method AND NOT b.frozen
JOIN benchmark_by_length c
    ON c.study = $study AND c.base_model = p.base_model AND c.method = p.common_method
    AND NOT c.frozen AND c.benchmark = b.benchmark AND c.eval_length = b.eval_length
    AND c.task_set = b.task_set
LEFT JOIN verdicts d
    ON d.base_model = p.base_model AND d.method = p.method
    AND NOT d.frozen AND d.other_method = p.common_method AND NOT d.other_frozen
    AND d.benchmark = b.benchmark AND d.eval_length = b.eval_length
WHERE b.value IS NOT NULL AND c.value IS NOT NULL
ORDER BY p.base_model, b.benchmark, b.eval_length, common_rank, method
