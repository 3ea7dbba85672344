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
COMMENT ON COLUMN scores.metric IS 'Name of the metric.';
COMMENT ON COLUMN scores.value IS 'Score of the cell in this metric.';
COMMENT ON COLUMN scores.ci_low IS
    'Lower bound of the score''s 95 % confidence interval over samples; NULL if the metric has no interval.';
COMMENT ON COLUMN scores.ci_high IS
    'Upper bound of the score''s 95 % confidence interval over samples; NULL if the metric has no interval.';
COMMENT ON COLUMN scores.num_samples IS 'Number of prompts or text windows behind the score.';
COMMENT ON COLUMN scores.checkpoint IS
    'Id of the training artifact whose weights were evaluated; NULL if the study does not train them.';
COMMENT ON COLUMN scores.created_at IS 'Time at which the cell was finished (UTC).';
COMMENT ON COLUMN scores.is_default IS
    'True for the benchmark''s default metric, which views with one value per cell show.';
COMMENT ON COLUMN scores.kernel IS
    'Attention kernel that computed the cell; NULL if the record does not name it.';

CREATE VIEW samples AS FROM store.sample ORDER BY rowid;

COMMENT ON VIEW samples IS
    'Scores of single prompts or text windows, one row each. Join on cell for study and method.';
COMMENT ON COLUMN samples.depth IS
    'Position of the text that contains the answer, in per cent of the context: 0 is the start, 100 the end; NULL if it has no single position.';

CREATE VIEW prompt_checks AS
WITH counted AS (
    SELECT
        c.*,
        s.num_samples,
        json_transform(
            a.result->'checks',
            '{"begin_tokens_min": "BIGINT", "begin_tokens_max": "BIGINT", "num_cut": "BIGINT",
              "num_special_names": "BIGINT", "num_without_begin": "BIGINT",
              "num_answer_elsewhere": "BIGINT"}'
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
    'Checks of the prompts of done cells, one row per study and cell with prompts that were evaluated since lce has these checks.';
COMMENT ON COLUMN prompt_checks.problem IS
    'What is wrong with how many prompts, in words; NULL if nothing is.';
COMMENT ON COLUMN prompt_checks.num_samples IS 'Number of scored samples.';
COMMENT ON COLUMN prompt_checks.begin_tokens_min IS
    'Fewest beginning-of-text tokens at the start of a prompt; NULL if the tokenizer has none.';
COMMENT ON COLUMN prompt_checks.begin_tokens_max IS
    'Most beginning-of-text tokens at the start of a prompt; NULL if the tokenizer has none.';
COMMENT ON COLUMN prompt_checks.num_cut IS
    'Number of prompts that lost their middle, because they were longer than the cell''s length.';
COMMENT ON COLUMN prompt_checks.num_special_names IS
    'Number of prompts whose text spells the name of a special token.';
COMMENT ON COLUMN prompt_checks.num_without_begin IS
    'Number of prompts without the beginning-of-text token that the model needs; 0 for models that need none.';
COMMENT ON COLUMN prompt_checks.num_answer_elsewhere IS
    'Number of prompts that state the answer outside its neighbourhood too; NULL if prompts have no such neighbourhood.';

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
COMMENT ON COLUMN token_nll.nll IS
    'Mean negative log-likelihood of the tokens in the bin, in nats per token.';
