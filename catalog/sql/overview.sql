-- All benchmarks at one length, one row per method, as in Table 1 of LCEG (arXiv:2409.12181).

CREATE VIEW overview AS
WITH longest AS (
    SELECT study, max(eval_length) AS longest_length
    FROM store.cell
    WHERE kind IN ('text', 'retrieval')
    GROUP BY study
),
shown AS (
    SELECT b.*, b.benchmark AS name
    FROM benchmark_by_length b
    JOIN store.study s USING (study, base_model)
    WHERE b.eval_length = s.target_context
    UNION ALL
    SELECT b.*, b.benchmark || '_longest' AS name
    FROM benchmark_by_length b
    JOIN longest l USING (study)
    WHERE b.eval_length = l.longest_length
        AND b.kind IN ('text', 'retrieval')
),
means AS (
    SELECT study, base_model, method, frozen,
        any_value(value) FILTER (name = 'perplexity') AS perplexity,
        any_value(value) FILTER (name = 'needle') AS needle,
        any_value(value) FILTER (name = 'passkey') AS passkey,
        any_value(value) FILTER (name = 'many_shot') AS many_shot,
        any_value(value) FILTER (name = 'longbench') AS longbench,
        any_value(value) FILTER (name = 'ruler') AS ruler,
        any_value(value) FILTER (name = 'perplexity_longest') AS perplexity_longest,
        any_value(value) FILTER (name = 'needle_longest') AS needle_longest,
        any_value(value) FILTER (name = 'passkey_longest') AS passkey_longest,
        map_from_entries(
            list((name, value) ORDER BY name) FILTER (value IS NOT NULL)
        ) AS value_by_benchmark,
        map_from_entries(
            list((name, value_of_done) ORDER BY name) FILTER (missing IS NOT NULL AND num_done > 0)
        ) AS value_of_done,
        map_from_entries(list((name, task_set) ORDER BY name)) AS task_set
    FROM shown
    GROUP BY study, base_model, method, frozen
),
gaps AS (
    SELECT study, base_model, method, frozen, status, reason,
        concat_ws('/', benchmark, nullif(task, benchmark)) || ' at '
            || string_agg(eval_length::VARCHAR, ' ' ORDER BY eval_length)
            || ' ' || seeds AS cells,
        min(position) AS position
    FROM store.gap
    SEMI JOIN shown USING (study, base_model, benchmark, eval_length)
    GROUP BY study, base_model, method, frozen, status, reason, benchmark, task, seeds
),
reasons AS (
    SELECT study, base_model, method, frozen,
        status || ': ' || string_agg(cells, ', ' ORDER BY position) || ' (' || reason || ')'
            AS cells_with_reason,
        min(position) AS position
    FROM gaps
    GROUP BY study, base_model, method, frozen, status, reason
),
missing AS (
    SELECT study, base_model, method, frozen,
        string_agg(cells_with_reason, '; ' ORDER BY position) AS missing
    FROM reasons
    GROUP BY study, base_model, method, frozen
),
methods AS (
    SELECT c.study, c.base_model, c.method, c.frozen, s.target_context,
        any_value(c.exact_attention) AS exact_attention,
        min(c.position) AS position,
        count(*) FILTER (c.status IN ('failed', 'missing')) AS num_missing,
        count(*) FILTER (c.status = 'unavailable') AS num_unavailable,
        count(DISTINCT c.seed) FILTER (
            c.status = 'done' AND c.eval_length = s.target_context
        ) AS num_seeds
    FROM store.cell c
    JOIN store.study s USING (study, base_model)
    GROUP BY c.study, c.base_model, c.method, c.frozen, s.target_context
)
SELECT
    study,
    base_model,
    method,
    frozen,
    exact_attention,
    perplexity,
    needle,
    passkey,
    many_shot,
    longbench,
    ruler,
    num_seeds,
    perplexity_longest,
    needle_longest,
    passkey_longest,
    target_context,
    longest_length,
    num_missing,
    num_unavailable,
    value_of_done,
    missing,
    task_set,
    value_by_benchmark
FROM methods
LEFT JOIN longest USING (study)
LEFT JOIN means USING (study, base_model, method, frozen)
LEFT JOIN missing USING (study, base_model, method, frozen)
ORDER BY study, position;

COMMENT ON VIEW overview IS
    'One row per method: each benchmark''s mean over its tasks and seeds; NULL if a cell is not done or the study lacks the benchmark.';
