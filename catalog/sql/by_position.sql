CREATE VIEW nll_by_position AS
WITH bins AS (
    SELECT
        c.study, c.base_model, c.method, c.frozen, c.benchmark, c.task, c.eval_length,
        t.position_bin,
        avg(t.nll) AS value_of_done,
        min(t.nll) AS lowest,
        max(t.nll) AS highest,
        count(*) AS num_seeds,
        min(c.position) AS position
    FROM store.cell c
    JOIN store.token_nll t ON t.cell = c.cell
    WHERE c.status = 'done'
    GROUP BY
        c.study, c.base_model, c.method, c.frozen, c.benchmark, c.task, c.eval_length,
        t.position_bin
)
SELECT
    study,
    base_model,
    method,
    frozen,
    benchmark,
    task,
    eval_length,
    position_bin,
    if_complete(b.value_of_done, b.num_seeds, s.num_planned) AS nll,
    if_complete(b.lowest, b.num_seeds, s.num_planned) AS lowest,
    if_complete(b.highest, b.num_seeds, s.num_planned) AS highest,
    b.num_seeds,
    s.num_planned,
    b.value_of_done,
    coalesce(
        s.missing,
        CASE WHEN b.num_seeds < s.num_planned
            THEN (s.num_planned - b.num_seeds) || ' of ' || s.num_planned
                || ' seeds have no token in this bin'
        END
    ) AS missing,
    s.task_set
FROM bins b
JOIN score_by_length s USING (study, base_model, method, frozen, benchmark, task, eval_length)
ORDER BY study, b.position, position_bin;

COMMENT ON VIEW nll_by_position IS
    'Negative log-likelihood (NLL) by token position, averaged over seeds; NULL unless all seeds are done.';
COMMENT ON COLUMN nll_by_position.nll IS
    'Mean negative log-likelihood of the tokens in the bin over all planned seeds, in nats per token; NULL if a seed is not done.';
COMMENT ON COLUMN nll_by_position.lowest IS
    'NLL of the seed with the lowest NLL in the bin; NULL if a seed is not done.';
COMMENT ON COLUMN nll_by_position.highest IS
    'NLL of the seed with the highest NLL in the bin; NULL if a seed is not done.';
COMMENT ON COLUMN nll_by_position.num_seeds IS
    'Number of seeds that are done and have tokens in the bin.';
COMMENT ON COLUMN nll_by_position.num_planned IS 'Number of planned seeds.';
COMMENT ON COLUMN nll_by_position.value_of_done IS
    'Mean over the seeds that are done, even if some are missing, in nats per token; not comparable with other means.';
COMMENT ON COLUMN nll_by_position.missing IS
    'Status, number and reason of the seeds that are not done; NULL if all are done.';

CREATE VIEW long_perplexity AS
FROM store.long_perplexity
ORDER BY study, base_model, task, eval_length, method, frozen, seed;

COMMENT ON VIEW long_perplexity IS
    'LongPPL (arXiv:2410.23771): perplexity of the key tokens, which the unmodified base model, within its trained context, predicts much better with long context than with short context. The published variant selects key tokens with Llama-3.1-8B instead.';
COMMENT ON COLUMN long_perplexity.value IS
    'Perplexity over the key tokens; lower is better. NULL if no key token has enough context at this length.';
COMMENT ON COLUMN long_perplexity.ci_low IS
    'Lower bound of the 95 % interval over documents, for these key tokens; NULL below six documents.';
COMMENT ON COLUMN long_perplexity.ci_high IS
    'Upper bound of the 95 % interval over documents, for these key tokens; NULL below six documents.';
COMMENT ON COLUMN long_perplexity.num_key_tokens IS
    'Number of key tokens: the long context raises their log-probability by more than 2 nats, to more than -2.';
COMMENT ON COLUMN long_perplexity.evaluator_tokens IS
    'Window length, in tokens, of the evaluator''s long context.';
COMMENT ON COLUMN long_perplexity.short_tokens IS
    'Minimum number of tokens before a key token in the evaluator''s short context (4,096 in the paper).';
