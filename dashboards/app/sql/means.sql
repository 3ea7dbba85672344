-- Mean of each task with its 95 % interval, and whether its cells have answers to look at.
SELECT m.base_model, m.method, m.frozen, m.benchmark, m.task, m.eval_length, m.metric, m.value,
    m.ci_low, m.ci_high, m.num_seeds, m.num_documents,
    EXISTS (
        FROM cells c JOIN samples s USING (cell)
        WHERE c.study = m.study AND c.base_model = m.base_model AND c.benchmark = m.benchmark
            AND c.task = m.task AND s.prediction IS NOT NULL
    ) AS has_answers
FROM mean_over_seeds m
WHERE m.study = $study
ORDER BY m.benchmark, m.task, m.eval_length DESC,
    CASE WHEN m.higher_is_better THEN -m.value ELSE m.value END
