-- Mean score by depth, for cells whose seeds are all done.
SELECT p.base_model, p.method, p.frozen, p.eval_length, coalesce(s.depth, 0) AS depth,
    avg(s.score) AS value,
    count(*) AS num_samples
FROM score_by_length p
JOIN cells c USING (study, base_model, method, frozen, benchmark, task, eval_length)
JOIN samples s USING (cell)
WHERE p.study = $study AND p.benchmark = $benchmark AND p.task = $task AND p.value IS NOT NULL
GROUP BY ALL
ORDER BY ALL
