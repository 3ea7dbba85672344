-- LCEG's training settings beside those of our training runs, for any base model.

CREATE VIEW lceg.table_7 AS
WITH paper AS (
    SELECT
        paper_method,
        method,
        any_value(value) FILTER (setting = 'train_length') AS train_length,
        any_value(value) FILTER (setting = 'train_tokens') AS train_tokens,
        any_value(value) FILTER (setting = 'scale') AS scale,
        any_value(value) FILTER (setting = 'batch_size') AS batch_size,
        any_value(value) FILTER (setting = 'learning_rate') AS learning_rate,
        min(id) AS id
    FROM papers.hyperparameter
    WHERE paper = 'lceg' AND place = 'Table 7'
    GROUP BY ALL
),
ours AS (
    SELECT
        c.study,
        c.base_model,
        c.method,
        any_value((a.spec->>'row_length')::DOUBLE) AS train_length,
        any_value((a.spec->'training'->>'tokens_per_step')::DOUBLE) AS step_tokens,
        any_value((a.spec->>'num_steps')::DOUBLE) AS num_steps,
        any_value(coalesce(
            a.result->'chosen'->>'learning_rate', a.spec->'training'->>'learning_rate'
        )::DOUBLE) AS learning_rate
    FROM store.cell c
    JOIN store.artifact a ON a.artifact = c.checkpoint AND a.kind = 'finetune'
    WHERE NOT c.frozen AND c.method IN (SELECT method FROM paper)
    GROUP BY c.study, c.base_model, c.method
),
studies AS (
    SELECT DISTINCT study FROM ours
),
sides AS (
    SELECT s.study, NULL AS base_model, p.*, 'paper' AS source
    FROM paper p
    LEFT JOIN studies s ON true
    UNION ALL
    SELECT
        o.study, o.base_model, p.paper_method, p.method, o.train_length,
        o.num_steps * o.step_tokens, NULL, o.step_tokens / o.train_length, o.learning_rate, p.id,
        'ours'
    FROM paper p
    JOIN ours o ON o.method = p.method
)
SELECT
    study,
    base_model,
    paper_method,
    method,
    source,
    train_length,
    train_tokens,
    scale,
    batch_size,
    learning_rate
FROM sides
ORDER BY study, id, source DESC, base_model;

COMMENT ON VIEW lceg.table_7 IS 'Table 7. Training settings. Lengths: the training length.';
