-- One row per method in the shape of Table 1 of arXiv:2409.12181: all benchmarks at one length.

CREATE VIEW overview AS
WITH longest AS (
    SELECT study, max(eval_length) AS longest_length
    FROM store.cell
    WHERE benchmark IN ('perplexity', 'needle', 'passkey')
    GROUP BY study
),
shown AS (
    SELECT b.*, b.benchmark AS name
    FROM benchmark_by_length b
    JOIN store.study s ON s.study = b.study AND s.base_model = b.base_model
    WHERE b.eval_length = s.target_context
        AND b.benchmark IN (
            'perplexity', 'needle', 'passkey', 'many_shot', 'longbench', 'ruler'
        )
    UNION ALL
    SELECT b.*, b.benchmark || '_longest' AS name
    FROM benchmark_by_length b
    JOIN longest l ON l.study = b.study
    WHERE b.eval_length = l.longest_length
        AND b.benchmark IN ('perplexity', 'needle', 'passkey')
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
            list((name, value_of_done) ORDER BY name) FILTER (missing IS NOT NULL AND num_done > 0)
        ) AS value_of_done,
        map_from_entries(list((name, task_set) ORDER BY name)) AS task_set
    FROM shown
    GROUP BY study, base_model, method, frozen
),
gaps AS (
    SELECT g.study, g.base_model, g.method, g.frozen, g.status, g.reason,
        concat_ws('/', g.benchmark, nullif(g.task, g.benchmark)) || ' at '
            || string_agg(g.eval_length::VARCHAR, ' ' ORDER BY g.eval_length)
            || ' ' || g.seeds AS cells,
        min(g.position) AS position
    FROM store.gap g
    SEMI JOIN shown s
        ON s.study = g.study AND s.base_model = g.base_model AND s.benchmark = g.benchmark
        AND s.eval_length = g.eval_length
    GROUP BY g.study, g.base_model, g.method, g.frozen, g.status, g.reason, g.benchmark, g.task,
        g.seeds
),
reasons AS (
    SELECT study, base_model, method, frozen,
        status || ': ' || string_agg(cells, ', ' ORDER BY position) || ' (' || reason || ')'
            AS told,
        min(position) AS position
    FROM gaps
    GROUP BY study, base_model, method, frozen, status, reason
),
missing AS (
    SELECT study, base_model, method, frozen, string_agg(told, '; ' ORDER BY position) AS missing
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
    JOIN store.study s ON s.study = c.study AND s.base_model = c.base_model
    GROUP BY c.study, c.base_model, c.method, c.frozen, s.target_context
)
SELECT
    m.study,
    m.base_model,
    m.method,
    m.frozen,
    m.exact_attention,
    v.perplexity,
    v.needle,
    v.passkey,
    v.many_shot,
    v.longbench,
    v.ruler,
    m.num_seeds,
    v.perplexity_longest,
    v.needle_longest,
    v.passkey_longest,
    m.target_context,
    l.longest_length,
    m.num_missing,
    m.num_unavailable,
    v.value_of_done,
    w.missing,
    v.task_set
FROM methods m
LEFT JOIN longest l ON l.study = m.study
LEFT JOIN means v
    ON v.study = m.study AND v.base_model = m.base_model
    AND v.method = m.method AND v.frozen = m.frozen
LEFT JOIN missing w
    ON w.study = m.study AND w.base_model = m.base_model
    AND w.method = m.method AND w.frozen = m.frozen
ORDER BY m.study, m.position;

COMMENT ON VIEW overview IS
    'One row per method: each benchmark''s mean over its tasks and seeds; NULL if a cell is not done or the study lacks the benchmark.';
COMMENT ON COLUMN overview.perplexity IS 'Perplexity at the target context; lower is better.';
COMMENT ON COLUMN overview.needle IS
    'Needle retrieval at the target context: share found (0 to 1); higher is better.';
COMMENT ON COLUMN overview.passkey IS
    'Passkey retrieval at the target context: share found (0 to 1); higher is better.';
COMMENT ON COLUMN overview.many_shot IS
    'Many-shot accuracy at the target context (0 to 1); higher is better.';
COMMENT ON COLUMN overview.longbench IS
    'Mean LongBench score at the target context (0 to 1); higher is better.';
COMMENT ON COLUMN overview.ruler IS
    'Mean RULER score at the target context (0 to 1); higher is better.';
COMMENT ON COLUMN overview.num_seeds IS 'Number of seeds with a done cell at the target context.';
COMMENT ON COLUMN overview.perplexity_longest IS 'Perplexity at longest_length; lower is better.';
COMMENT ON COLUMN overview.needle_longest IS
    'Needle retrieval at longest_length: share found (0 to 1); higher is better.';
COMMENT ON COLUMN overview.passkey_longest IS
    'Passkey retrieval at longest_length: share found (0 to 1); higher is better.';
COMMENT ON COLUMN overview.target_context IS
    'Context length in tokens at which the study compares its methods; cells has the one that each method extends to.';
COMMENT ON COLUMN overview.longest_length IS
    'Longest length, in tokens, at which the study evaluates perplexity, needle or passkey; NULL without these benchmarks.';
COMMENT ON COLUMN overview.num_missing IS
    'Number of the method''s cells at all lengths that failed or are not computed yet.';
COMMENT ON COLUMN overview.num_unavailable IS
    'Number of the method''s cells at all lengths that cannot be computed.';
COMMENT ON COLUMN overview.value_of_done IS
    'Mean over the cells that are done, by name of each column that is NULL because cells are missing; not comparable with other means.';
COMMENT ON COLUMN overview.missing IS
    'Status, cells and reason of everything behind these columns that is not done; NULL if all is done.';
COMMENT ON COLUMN overview.task_set IS
    'Id of the set of planned tasks, profiles and seeds behind each mean, by column name, as in task_sets.';
