-- Means against length: over seeds, and over tasks and seeds. All or nothing: see parts.sql.

CREATE VIEW score_by_length AS
WITH means AS (
    SELECT
        study, base_model, method, frozen, benchmark, task, eval_length, exact_attention,
        any_value(metric) AS metric,
        any_value(unit) AS unit,
        any_value(higher_is_better) AS higher_is_better,
        avg(value) AS value_of_done,
        min(value) AS lowest,
        max(value) AS highest,
        count(value) AS num_seeds,
        count(*) AS num_planned,
        count(value) = count(*) AS is_complete,
        left(sha256(string_agg(part, ' ' ORDER BY part)), 12) AS task_set,
        min(position) AS position
    FROM store.part
    GROUP BY study, base_model, method, frozen, benchmark, task, eval_length, exact_attention
),
gaps AS (
    SELECT study, base_model, method, frozen, benchmark, task, eval_length,
        string_agg(status || ': ' || seeds || ' (' || reason || ')', '; ' ORDER BY position)
            AS missing
    FROM store.gap
    GROUP BY study, base_model, method, frozen, benchmark, task, eval_length
)
SELECT
    study,
    base_model,
    method,
    frozen,
    benchmark,
    task,
    metric,
    eval_length,
    if_complete(value_of_done, num_seeds, num_planned) AS value,
    if_complete(lowest, num_seeds, num_planned) AS lowest,
    if_complete(highest, num_seeds, num_planned) AS highest,
    num_seeds,
    unit,
    higher_is_better,
    exact_attention,
    num_planned,
    value_of_done,
    missing,
    task_set,
    CASE WHEN is_complete THEN rank() OVER (
        PARTITION BY study, base_model, eval_length, task_set, is_complete
        ORDER BY CASE WHEN higher_is_better THEN -value_of_done ELSE value_of_done END
    ) END AS rank
FROM means
LEFT JOIN gaps USING (study, base_model, method, frozen, benchmark, task, eval_length)
ORDER BY study, position;

COMMENT ON VIEW score_by_length IS
    'The default metric of each task against length: mean over seeds, NULL unless all are done.';
COMMENT ON COLUMN score_by_length.study IS 'Name of the study.';
COMMENT ON COLUMN score_by_length.base_model IS 'Registered name of the base model.';
COMMENT ON COLUMN score_by_length.method IS 'Label of the method.';
COMMENT ON COLUMN score_by_length.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN score_by_length.benchmark IS 'Registered name of the benchmark.';
COMMENT ON COLUMN score_by_length.task IS 'Task of the benchmark.';
COMMENT ON COLUMN score_by_length.metric IS 'Default metric of the task; NULL if no seed is done.';
COMMENT ON COLUMN score_by_length.eval_length IS 'Evaluated context in tokens.';
COMMENT ON COLUMN score_by_length.value IS
    'Mean over all planned seeds, in the unit of the benchmark; NULL if one is not done.';
COMMENT ON COLUMN score_by_length.lowest IS 'Lowest seed; NULL if one is not done.';
COMMENT ON COLUMN score_by_length.highest IS 'Highest seed; NULL if one is not done.';
COMMENT ON COLUMN score_by_length.num_seeds IS 'Seeds that are done.';
COMMENT ON COLUMN score_by_length.unit IS 'Unit of the value.';
COMMENT ON COLUMN score_by_length.higher_is_better IS 'Which direction is better.';
COMMENT ON COLUMN score_by_length.exact_attention IS
    'Whether every token can attend to every earlier one.';
COMMENT ON COLUMN score_by_length.num_planned IS 'Seeds that are planned.';
COMMENT ON COLUMN score_by_length.value_of_done IS
    'Mean over the seeds that are done, however many; not to be compared.';
COMMENT ON COLUMN score_by_length.missing IS
    'Which seeds are not done, and why; NULL if all are done.';
COMMENT ON COLUMN score_by_length.task_set IS 'Id of the planned parts; see task_sets.';
COMMENT ON COLUMN score_by_length.rank IS
    'Place among the methods that have a value and the same task set, 1 for the best.';

CREATE VIEW benchmark_by_length AS
WITH means AS (
    SELECT
        study, base_model, method, frozen, benchmark, eval_length, exact_attention,
        any_value(unit) AS unit,
        any_value(higher_is_better) AS higher_is_better,
        avg(value) AS value_of_done,
        count(value) AS num_done,
        count(*) AS num_planned,
        count(value) = count(*) AS is_complete,
        coalesce(string_agg(DISTINCT status, ', ' ORDER BY status) FILTER (status <> 'done'), 'done')
            AS status,
        left(sha256(string_agg(part, ' ' ORDER BY part)), 12) AS task_set,
        min(position) AS position
    FROM store.part
    GROUP BY study, base_model, method, frozen, benchmark, eval_length, exact_attention
),
reasons AS (
    SELECT study, base_model, method, frozen, benchmark, eval_length, status, reason,
        string_agg(task || ' ' || seeds, ', ' ORDER BY position) AS cells,
        min(position) AS position
    FROM store.gap
    GROUP BY study, base_model, method, frozen, benchmark, eval_length, status, reason
),
gaps AS (
    SELECT study, base_model, method, frozen, benchmark, eval_length,
        string_agg(status || ': ' || cells || ' (' || reason || ')', '; ' ORDER BY position)
            AS missing
    FROM reasons
    GROUP BY study, base_model, method, frozen, benchmark, eval_length
),
ranked AS (
    SELECT *,
        CASE WHEN is_complete THEN rank() OVER (
            PARTITION BY study, base_model, eval_length, task_set, is_complete
            ORDER BY CASE WHEN higher_is_better THEN -value_of_done ELSE value_of_done END
        ) END AS rank,
        count(*) OVER (
            PARTITION BY study, base_model, eval_length, task_set, is_complete
        ) AS num_ranked,
        count(*) FILTER (is_complete) OVER (
            PARTITION BY study, base_model, benchmark, eval_length
        ) AS num_complete,
        count(*) OVER (
            PARTITION BY study, base_model, benchmark, eval_length, task_set
        ) AS num_of_set
    FROM means
)
SELECT
    study,
    base_model,
    method,
    frozen,
    exact_attention,
    benchmark,
    eval_length,
    if_complete(value_of_done, num_done, num_planned) AS value,
    unit,
    higher_is_better,
    status,
    num_done,
    num_planned,
    value_of_done,
    missing,
    task_set,
    rank,
    -- Best of a column: of all that have a value, and of more than one.
    is_complete AND rank = 1 AND num_ranked = num_complete AND num_complete > 1 AS is_best,
    task_set = first_value(task_set) OVER (
        PARTITION BY study, base_model, benchmark, eval_length
        ORDER BY num_of_set DESC, position
    ) AS has_usual_tasks
FROM ranked
LEFT JOIN gaps USING (study, base_model, method, frozen, benchmark, eval_length)
ORDER BY study, position;

COMMENT ON VIEW benchmark_by_length IS
    'Each benchmark against length: mean over tasks and seeds, NULL unless all of them are done.';
COMMENT ON COLUMN benchmark_by_length.study IS 'Name of the study.';
COMMENT ON COLUMN benchmark_by_length.base_model IS 'Registered name of the base model.';
COMMENT ON COLUMN benchmark_by_length.method IS 'Label of the method.';
COMMENT ON COLUMN benchmark_by_length.frozen IS
    'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN benchmark_by_length.exact_attention IS
    'Whether every token can attend to every earlier one.';
COMMENT ON COLUMN benchmark_by_length.benchmark IS 'Registered name of the benchmark.';
COMMENT ON COLUMN benchmark_by_length.eval_length IS 'Evaluated context in tokens.';
COMMENT ON COLUMN benchmark_by_length.value IS
    'Mean over all planned tasks and seeds, default metric of each; NULL if one is not done.';
COMMENT ON COLUMN benchmark_by_length.unit IS 'Unit of the value; NULL if nothing is done.';
COMMENT ON COLUMN benchmark_by_length.higher_is_better IS
    'Which direction is better; NULL if nothing is done.';
COMMENT ON COLUMN benchmark_by_length.status IS
    'done, or what its other cells are: failed, missing, unavailable, separated by commas.';
COMMENT ON COLUMN benchmark_by_length.num_done IS 'Cells that are done.';
COMMENT ON COLUMN benchmark_by_length.num_planned IS
    'Cells that are planned: tasks times seeds, those that cannot be included.';
COMMENT ON COLUMN benchmark_by_length.value_of_done IS
    'Mean over the cells that are done, however many; not to be compared.';
COMMENT ON COLUMN benchmark_by_length.missing IS
    'Which cells are not done, and why; NULL if all are done.';
COMMENT ON COLUMN benchmark_by_length.task_set IS 'Id of the planned parts; see task_sets.';
COMMENT ON COLUMN benchmark_by_length.rank IS
    'Place among the methods that have a value and the same task set, 1 for the best.';
COMMENT ON COLUMN benchmark_by_length.is_best IS
    'Whether no other value is better; false if there is no other, or one of another task set.';
COMMENT ON COLUMN benchmark_by_length.has_usual_tasks IS
    'Whether the task set is the one of most of its column; of two as frequent, the first planned.';
