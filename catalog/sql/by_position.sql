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
    GROUP BY ALL
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

CREATE VIEW long_perplexity AS
FROM store.long_perplexity
ORDER BY study, base_model, task, eval_length, method, frozen, seed;

COMMENT ON VIEW long_perplexity IS
    'LongPPL (arXiv:2410.23771): perplexity of the key tokens, which the unmodified base model, within its trained context, predicts much better with long context than with short context. The published variant selects key tokens with Llama-3.1-8B instead.';
