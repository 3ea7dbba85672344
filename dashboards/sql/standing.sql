-- Share of comparisons that each method wins. A method is compared with every other method on each
-- task and length beyond the trained context at which both have a value. A tie counts as half a win.
WITH shown AS (
    SELECT s.*,
        CASE s.kind WHEN 'text' THEN 'perplexity' ELSE s.kind END AS measure
    FROM score_by_length s
    JOIN studies t USING (study, base_model)
    WHERE s.study = $study AND s.value IS NOT NULL
        AND s.eval_length > coalesce(t.trained_context, 0)
        AND (s.kind <> 'text' OR s.unit = 'perplexity')
)
SELECT a.base_model, a.method, a.frozen, a.measure,
    avg(
        CASE
            WHEN a.value = b.value THEN 0.5
            WHEN (a.value > b.value) = a.higher_is_better THEN 1
            ELSE 0
        END
    ) AS won,
    count(*) AS comparisons
FROM shown a
JOIN shown b USING (base_model, benchmark, task, eval_length, task_set)
WHERE (a.method, a.frozen) <> (b.method, b.frozen)
GROUP BY a.base_model, a.method, a.frozen, a.measure
ORDER BY a.base_model, a.measure, won DESC, a.method, a.frozen
