-- Benchmarks, tasks and lengths with answers, and whether their prompts vary the depth.
SELECT c.base_model, c.benchmark, c.task, c.eval_length,
    any_value(c.kind) AS kind,
    bool_or(s.depth IS NOT NULL) AS has_depth
FROM cells c
JOIN samples s USING (cell)
WHERE c.study = $study AND s.prediction IS NOT NULL
GROUP BY ALL
ORDER BY ALL
