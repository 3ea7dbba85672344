-- Scores by depth, of retrieval benchmarks that hide their answers on a grid of whole per cents.
WITH gridded AS (
    SELECT c.study, c.benchmark
    FROM cells c
    JOIN samples s USING (cell)
    WHERE c.study = $study AND c.kind = 'retrieval' AND s.depth IS NOT NULL
    GROUP BY ALL
    HAVING bool_and(s.depth = round(s.depth))
)
SELECT p.base_model, p.method, p.frozen, p.benchmark, p.task, p.eval_length, s.depth,
    avg(s.score) AS value,
    count(*) AS num_samples
FROM score_by_length p
SEMI JOIN gridded USING (study, benchmark)
JOIN cells c USING (study, base_model, method, frozen, benchmark, task, eval_length)
JOIN samples s USING (cell)
WHERE p.value IS NOT NULL AND s.depth IS NOT NULL
GROUP BY ALL
ORDER BY ALL
