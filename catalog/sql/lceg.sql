-- Views of LCEG's Table 7 and figures that are no pivots of printed figures.

-- Its training settings beside those of our training runs, for any base model.

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

-- Data of its figures. LCEG prints no numbers for them, so every study with the benchmark is
-- shown, whatever its base model and profile.

CREATE VIEW lceg.figure_1 AS
WITH found AS (
    SELECT
        c.study, c.base_model, c.method, c.frozen, c.benchmark, c.task, c.eval_length, s.depth,
        avg(s.score) AS score,
        count(*) AS num_samples
    FROM store.cell c
    JOIN store.sample s ON s.cell = c.cell
    WHERE c.benchmark = 'needle' AND c.status = 'done'
    GROUP BY ALL
)
SELECT
    study,
    base_model,
    method,
    frozen,
    eval_length,
    depth,
    CASE WHEN value IS NOT NULL THEN score END AS score,
    num_samples,
    task
FROM found
JOIN score_by_length USING (study, base_model, method, frozen, benchmark, task, eval_length)
ORDER BY study, base_model, method, frozen, task, eval_length, depth;

COMMENT ON VIEW lceg.figure_1 IS
    'Figure 1. Needle retrieval against length and depth, one row per method, length and depth. Lengths: all lengths of the study; the paper has 20 from 1,000 to 62,872.';

CREATE VIEW lceg.figure_2 AS
SELECT
    study,
    base_model,
    method,
    frozen,
    regexp_extract(task, '[0-9]+')::BIGINT AS shots,
    value AS accuracy,
    eval_length,
    num_seeds,
    missing
FROM score_by_length
WHERE benchmark = 'many_shot'
ORDER BY study, base_model, method, frozen, eval_length, shots;

COMMENT ON VIEW lceg.figure_2 IS
    'Figure 2. Many-shot accuracy against shots. Lengths: the context that the shots must fit in; in the paper, the base model''s own or the target.';

CREATE VIEW lceg.figure_3 AS
SELECT
    study,
    base_model,
    method,
    frozen,
    task,
    eval_length,
    position_bin,
    nll
FROM nll_by_position
WHERE benchmark = 'nll_by_position';

COMMENT ON VIEW lceg.figure_3 IS
    'Figure 3. Negative log-likelihood (NLL) by position. Lengths: all lengths of the study; the paper has 64k for the base, NTK-32K and YaRN.';

CREATE VIEW lceg.figure_4 AS
SELECT
    study,
    base_model,
    method,
    frozen,
    exact_attention,
    eval_length,
    any_value(perplexity) AS perplexity,
    any_value(value) FILTER (benchmark = 'needle') AS needle,
    any_value(value) FILTER (benchmark = 'longbench') AS longbench,
    any_value(value) FILTER (benchmark = 'ruler') AS ruler
FROM perplexity_vs_downstream
GROUP BY ALL
ORDER BY study, base_model, eval_length, method, frozen;

COMMENT ON VIEW lceg.figure_4 IS
    'Figure 4. Perplexity and downstream scores, one row per point. Lengths: those at which the method has perplexity and a downstream benchmark.';

CREATE VIEW lceg.figure_5 AS
FROM lceg.figure_1
WHERE method IN ('ntk_64k', 'ntk_64k_2b');

COMMENT ON VIEW lceg.figure_5 IS
    'Figure 5. Figure 1 for NTK-64K after one and two billion training tokens (ntk_64k, ntk_64k_2b). Lengths: as in figure 1.';
