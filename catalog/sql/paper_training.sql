-- LCEG's settings of training beside those of our training runs, whatever their base model.

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
        any_value((a.spec->'training'->>'learning_rate')::DOUBLE) AS learning_rate
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

COMMENT ON VIEW lceg.table_7 IS
    'Table 7. Settings of training. Lengths: the length trained at.';
COMMENT ON COLUMN lceg.table_7.study IS
    'Name of our study; NULL if none has trained a method of the table.';
COMMENT ON COLUMN lceg.table_7.base_model IS 'Base model of our study; NULL on the paper''s side.';
COMMENT ON COLUMN lceg.table_7.paper_method IS 'Method as the paper names it.';
COMMENT ON COLUMN lceg.table_7.method IS 'Label of the method.';
COMMENT ON COLUMN lceg.table_7.source IS
    'paper: as printed. ours: what our training run was asked for, once it is done.';
COMMENT ON COLUMN lceg.table_7.train_length IS 'Tokens of a training row.';
COMMENT ON COLUMN lceg.table_7.train_tokens IS 'Tokens of the whole run.';
COMMENT ON COLUMN lceg.table_7.scale IS
    'Scale in training; NULL on our side, where methods take it from the lengths.';
COMMENT ON COLUMN lceg.table_7.batch_size IS 'Rows of a training step.';
COMMENT ON COLUMN lceg.table_7.learning_rate IS 'Peak learning rate.';
