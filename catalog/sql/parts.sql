-- Parts of means: a part is a planned cell, identified by benchmark, task, profile and seed. A mean
-- is NULL unless all its parts are done. `store.gap` holds the parts without a score and the
-- reasons. The views of schema `store` are internal.

CREATE VIEW store.part AS
SELECT
    c.*,
    concat_ws('/', c.benchmark, c.task, c.profile, c.seed) AS part,
    s.metric,
    s.value,
    s.unit,
    s.higher_is_better
FROM store.cell c
LEFT JOIN store.score s ON s.cell = c.cell AND s.is_default;

COMMENT ON VIEW store.part IS 'Planned cells with the default score of those that are done.';

CREATE VIEW store.gap AS
SELECT
    study,
    base_model,
    method,
    frozen,
    benchmark,
    task,
    eval_length,
    status,
    reason,
    CASE count(*) WHEN 1 THEN 'seed ' ELSE 'seeds ' END
        || string_agg(seed::VARCHAR, ' ' ORDER BY seed) AS seeds,
    min(position) AS position
FROM (
    SELECT * REPLACE (coalesce(reason, 'no score in its default metric') AS reason)
    FROM store.part
    WHERE value IS NULL
)
GROUP BY study, base_model, method, frozen, benchmark, task, eval_length, status, reason;

COMMENT ON VIEW store.gap IS
    'Cells without a score, one row per task, status and reason, with their seeds.';

CREATE VIEW task_sets AS
SELECT DISTINCT
    task_set_id(part) AS task_set,
    benchmark,
    count(*) AS num_parts,
    part_list(part) AS parts
FROM store.part
GROUP BY GROUPING SETS (
    (study, base_model, method, frozen, benchmark, task, eval_length),
    (study, base_model, method, frozen, benchmark, eval_length)
)
ORDER BY benchmark, num_parts, parts;

COMMENT ON VIEW task_sets IS
    'Sets of planned tasks, profiles and seeds over which means are taken. Methods are ranked only within one set.';
