CREATE VIEW scores AS
SELECT
    c.study,
    c.base_model,
    c.method,
    c.seed,
    c.train_length,
    c.benchmark,
    c.task,
    s.metric,
    c.eval_length,
    s.value,
    s.ci_low,
    s.ci_high,
    s.num_samples,
    s.higher_is_better,
    c.exact_attention,
    c.frozen,
    c.profile,
    c.cell,
    c.checkpoint,
    a.created_at,
    s.is_default,
    s.unit,
    s.kernel,
    c.prompt_tokens_mean,
    c.prompt_tokens_min,
    c.prompt_tokens_max,
    c.data,
    variant_name(c.method, c.frozen) AS variant
FROM store.cell c
JOIN store.score s ON s.cell = c.cell
JOIN store.artifact a ON a.artifact = c.cell
WHERE c.status = 'done'
ORDER BY c.study, c.position, s.rowid;

COMMENT ON VIEW scores IS 'Scores of the done cells, one row per study, cell and metric.';

CREATE VIEW samples AS FROM store.sample ORDER BY rowid;

COMMENT ON VIEW samples IS
    'Scores of single prompts or text windows, one row each. Join on cell for study and method.';

CREATE VIEW prompt_checks AS
WITH counted AS (
    SELECT
        c.*,
        s.num_samples,
        json_transform(
            a.result->'checks',
            '{"begin_tokens_min": "BIGINT", "begin_tokens_max": "BIGINT", "num_cut": "BIGINT",
              "num_special_names": "BIGINT", "num_without_begin": "BIGINT",
              "num_begin_inside": "BIGINT", "num_answer_elsewhere": "BIGINT"}'
        ) AS checks
    FROM store.cell c
    JOIN store.artifact a ON a.artifact = c.cell
    JOIN store.score s ON s.cell = c.cell AND s.is_default
    WHERE c.status = 'done' AND (a.result->'checks') IS NOT NULL
)
SELECT
    study,
    base_model,
    method,
    frozen,
    seed,
    benchmark,
    task,
    eval_length,
    nullif(
        concat_ws(
            '; ',
            checks.num_cut || CASE WHEN checks.num_cut > 0 THEN ' lost their middle' END,
            checks.num_without_begin || CASE WHEN checks.num_without_begin > 0
                THEN ' lack the beginning-of-text token, which the model needs' END,
            CASE WHEN checks.begin_tokens_max > 1
                THEN 'one begins with ' || checks.begin_tokens_max || ' beginning-of-text tokens'
            END,
            checks.num_begin_inside || CASE WHEN checks.num_begin_inside > 0
                THEN ' have a beginning-of-text token inside' END,
            checks.num_special_names || CASE WHEN checks.num_special_names > 0
                THEN ' spell the name of a special token' END,
            checks.num_answer_elsewhere || CASE WHEN checks.num_answer_elsewhere > 0
                THEN ' state the answer in a second place' END
        ),
        ''
    ) AS problem,
    num_samples,
    checks.*,
    cell
FROM counted
ORDER BY study, position;

COMMENT ON VIEW prompt_checks IS
    'Checks of done cells, one row per study and cell with prompts, or with windows that lack the beginning-of-text token.';

CREATE VIEW study_samples AS
SELECT
    c.study,
    c.base_model,
    c.method,
    c.frozen,
    c.variant,
    c.seed,
    c.benchmark,
    c.task,
    s.*
FROM samples s
JOIN cells c USING (cell, eval_length);

COMMENT ON VIEW study_samples IS
    'The view samples with study, method, seed and benchmark: one row per study, cell and prompt or text window.';

CREATE VIEW token_nll AS FROM store.token_nll ORDER BY rowid;

COMMENT ON VIEW token_nll IS
    'Negative log-likelihood (NLL) by token position, one row per cell and bin of positions.';
