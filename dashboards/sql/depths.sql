-- Scores by depth, of retrieval benchmarks that hide their answers on a grid: at depths that are
-- evenly spaced or all whole per cents.
WITH spaced AS (
    SELECT c.benchmark, s.depth,
        s.depth - lag(s.depth) OVER (PARTITION BY c.benchmark ORDER BY s.depth) AS gap
    FROM cells c
    JOIN samples s USING (cell)
    WHERE c.study = $study AND c.kind = 'retrieval' AND s.depth IS NOT NULL
    GROUP BY c.benchmark, s.depth
), gridded AS (
    SELECT benchmark
    FROM spaced
    GROUP BY benchmark
    HAVING bool_and(depth = round(depth)) OR max(gap) - min(gap) < 1e-6
)
SELECT p.base_model, p.method, p.frozen, p.benchmark, p.task, p.eval_length, s.depth,
    avg(s.score) AS value,
    count(*) AS num_samples
FROM score_by_length p
SEMI JOIN gridded USING (benchmark)
JOIN cells c USING (study, base_model, method, frozen, benchmark, task, eval_length)
JOIN samples s USING (cell)
WHERE p.study = $study AND p.value IS NOT NULL AND s.depth IS NOT NULL
GROUP BY ALL
ORDER BY ALL
