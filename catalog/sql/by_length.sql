-- Means by length: over seeds, and over tasks and seeds. A mean is NULL unless all parts are done;
-- see parts.sql.

CREATE VIEW score_by_length AS
WITH means AS (
    SELECT
        study, base_model, method, frozen, benchmark, task, eval_length, exact_attention,
        any_value(metric) AS metric,
        any_value(kind) AS kind,
        any_value(unit) AS unit,
        any_value(higher_is_better) AS higher_is_better,
        if_complete(avg(value), count(value), count(*)) AS value,
        if_complete(min(value), count(value), count(*)) AS lowest,
        if_complete(max(value), count(value), count(*)) AS highest,
        avg(value) AS value_of_done,
        count(value) AS num_seeds,
        count(*) AS num_planned,
        task_set_id(part) AS task_set,
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
    value,
    lowest,
    highest,
    num_seeds,
    unit,
    higher_is_better,
    exact_attention,
    num_planned,
    value_of_done,
    missing,
    task_set,
    CASE WHEN value IS NOT NULL THEN rank() OVER (
        PARTITION BY study, base_model, eval_length, task_set, value IS NULL
        ORDER BY best_first(value, higher_is_better)
    ) END AS rank,
    kind,
    variant_name(method, frozen) AS variant
FROM means
LEFT JOIN gaps USING (study, base_model, method, frozen, benchmark, task, eval_length)
ORDER BY study, position;

COMMENT ON VIEW score_by_length IS
    'Default metric of each task and length, averaged over seeds; NULL unless all seeds are done.';

CREATE VIEW benchmark_by_length AS
WITH means AS (
    SELECT
        study, base_model, method, frozen, benchmark, eval_length, exact_attention,
        any_value(kind) AS kind,
        any_value(unit) AS unit,
        any_value(higher_is_better) AS higher_is_better,
        if_complete(avg(value), count(value), count(*)) AS value,
        avg(value) AS value_of_done,
        count(value) AS num_done,
        count(*) AS num_planned,
        coalesce(string_agg(DISTINCT status, ', ' ORDER BY status) FILTER (status <> 'done'), 'done')
            AS status,
        task_set_id(part) AS task_set,
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
        CASE WHEN value IS NOT NULL THEN rank() OVER (
            PARTITION BY study, base_model, eval_length, task_set, value IS NULL
            ORDER BY best_first(value, higher_is_better)
        ) END AS rank,
        count(value) OVER (PARTITION BY study, base_model, eval_length, task_set) AS num_ranked,
        count(value) OVER (
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
    value,
    unit,
    higher_is_better,
    status,
    num_done,
    num_planned,
    value_of_done,
    missing,
    task_set,
    rank,
    -- The best of at least two values is marked only if all of them have the same task set.
    value IS NOT NULL AND rank = 1 AND num_ranked = num_complete AND num_complete > 1 AS is_best,
    task_set = first_value(task_set) OVER (
        PARTITION BY study, base_model, benchmark, eval_length
        ORDER BY num_of_set DESC, position
    ) AS has_usual_tasks,
    kind,
    variant_name(method, frozen) AS variant
FROM ranked
LEFT JOIN gaps USING (study, base_model, method, frozen, benchmark, eval_length)
ORDER BY study, position;

COMMENT ON VIEW benchmark_by_length IS
    'Mean of each benchmark at each length over its tasks and seeds; NULL unless all of them are done.';

CREATE VIEW lost_and_gained AS
WITH measured AS (
    SELECT b.*, b.eval_length <= s.trained_context AS is_within,
        CASE WHEN b.unit <> 'perplexity' THEN b.value WHEN b.value > 0 THEN ln(b.value) END
            AS measure
    FROM benchmark_by_length b
    JOIN store.study s USING (study, base_model)
    WHERE is_within OR b.eval_length BETWEEN s.trained_context AND s.target_context
),
differences AS (
    SELECT m.*, o.method IS NOT NULL AS has_base,
        CASE WHEN m.higher_is_better
            THEN m.measure - o.measure ELSE o.measure - m.measure END AS better,
        max(m.eval_length) FILTER (better IS NOT NULL) OVER (
            PARTITION BY study, base_model, benchmark, task_set, m.is_within
        ) AS longest
    FROM measured m
    LEFT JOIN (FROM measured WHERE method = 'none' AND frozen) o
        USING (study, base_model, benchmark, eval_length, task_set)
),
sides AS (
    SELECT study, base_model, method, frozen, benchmark, task_set, is_within, longest,
        any_value(unit) AS unit,
        any_value(better) FILTER (eval_length = longest) AS better,
        CASE WHEN bool_or(has_base)
            THEN 'no result' || coalesce(' at ' || longest || ' tokens', '')
            ELSE 'base model not evaluated' END AS reason
    FROM differences
    GROUP BY study, base_model, method, frozen, benchmark, task_set, is_within, longest
),
trained AS (
    SELECT study, base_model, method, frozen,
        any_value(train_tokens) AS train_tokens,
        min(position) AS position
    FROM store.cell
    GROUP BY study, base_model, method, frozen
)
-- Task sets without any value have equal rows: keep one.
SELECT DISTINCT ON (study, base_model, method, frozen, benchmark, w.longest, b.longest, reason)
    study,
    base_model,
    method,
    frozen,
    benchmark,
    w.longest AS within_length,
    0 - w.better AS lost,
    b.longest AS beyond_length,
    b.better AS gained,
    replace(coalesce(w.unit, b.unit), 'perplexity', 'nats') AS unit,
    train_tokens,
    variant_name(method, frozen) AS variant,
    nullif(concat_ws('; ',
        CASE WHEN lost IS NULL THEN coalesce(w.reason, 'no length')
            || ' within the trained context' END,
        CASE WHEN gained IS NULL THEN coalesce(b.reason, 'no length')
            || ' beyond the trained context' END
    ), '') AS reason
FROM (FROM sides WHERE is_within) w
FULL JOIN (FROM sides WHERE NOT is_within) b
    USING (study, base_model, method, frozen, benchmark, task_set)
JOIN trained USING (study, base_model, method, frozen)
ORDER BY study, position, benchmark;

COMMENT ON VIEW lost_and_gained IS
    'What each method costs within the trained context and gains beyond it, in the same unit, against the model without a method.';
