-- Every planned cell with each of its scores; a cell that is not done has one row without a score.
WITH numbered AS (
    -- A cell that is not done has no family: take it from other cells of the method.
    SELECT * REPLACE (
            any_value(family) OVER (PARTITION BY base_model, method, frozen) AS family
        ), row_number() OVER () AS position
    FROM cells WHERE study = $study
)
SELECT c.base_model, c.method, c.frozen, coalesce(c.family, 'other') AS family, c.seed,
    c.benchmark, c.task, c.eval_length, c.train_length, c.cell, c.status,
    c.seconds, c.tokens, c.flops,
    s.metric, s.value, s.unit, s.higher_is_better, coalesce(s.is_default, false) AS is_default
FROM numbered c
LEFT JOIN scores s ON s.study = c.study AND s.cell = c.cell
ORDER BY c.position, s.is_default DESC, s.metric
