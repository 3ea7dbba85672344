SELECT p.base_model, p.method, p.frozen, p.benchmark, p.task, p.eval_length, s.depth,
    avg(s.score) AS value,
    count(*) AS num_samples
FROM score_by_length p
JOIN cells c USING (study, base_model, method, frozen, benchmark, task, eval_length)
JOIN samples s USING (cell)
WHERE p.study = $study AND p.benchmark = 'needle' AND p.value IS NOT NULL AND s.depth IS NOT NULL
GROUP BY ALL
ORDER BY ALL
