WITH evaluated AS (
    SELECT base_model, method, frozen,
        count(*) FILTER (status = 'done') AS cells,
        sum(seconds) AS evaluation_seconds,
        sum(tokens)::BIGINT AS tokens,
        sum(flops) AS flops,
        any_value(train_tokens) AS tokens_of_run,
        any_value(train_flops) AS flops_of_run
    FROM (
        -- Seeds with the same cell id share one result; count its cost once.
        SELECT DISTINCT ON (base_model, method, frozen, cell) *
        FROM cells WHERE study = $study
    )
    GROUP BY base_model, method, frozen
),
trained AS (
    SELECT base_model, method, frozen,
        count(*) AS num_trained,
        sum(seconds) AS training_seconds,
        max(peak_memory_gb) AS peak_memory_gb
    FROM (
        SELECT DISTINCT base_model, method, frozen, checkpoint FROM scores
        WHERE study = $study AND NOT frozen
    )
    JOIN artifacts ON artifact = checkpoint
    LEFT JOIN (
        SELECT checkpoint, max(peak_memory_bytes) / 1e9 AS peak_memory_gb
        FROM trainings
        GROUP BY checkpoint
    ) USING (checkpoint)
    GROUP BY base_model, method, frozen
)
SELECT e.* EXCLUDE (tokens_of_run, flops_of_run),
    e.tokens_of_run * coalesce(t.num_trained, 1) AS train_tokens,
    e.flops_of_run * coalesce(t.num_trained, 1) AS train_flops,
    t.training_seconds, t.peak_memory_gb
FROM evaluated e
LEFT JOIN trained t USING (base_model, method, frozen)
ORDER BY base_model, method, frozen
