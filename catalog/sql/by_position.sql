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
    'Negative log-likelihood by position: mean over seeds, NULL unless all are done.';
COMMENT ON COLUMN nll_by_position.study IS 'Name of the study.';
COMMENT ON COLUMN nll_by_position.base_model IS 'Registered name of the base model.';
COMMENT ON COLUMN nll_by_position.method IS 'Label of the method.';
COMMENT ON COLUMN nll_by_position.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN nll_by_position.benchmark IS 'Registered name of the benchmark.';
COMMENT ON COLUMN nll_by_position.task IS 'Task of the benchmark.';
COMMENT ON COLUMN nll_by_position.eval_length IS 'Evaluated context in tokens.';
COMMENT ON COLUMN nll_by_position.position_bin IS 'First position of the bin, in tokens.';
COMMENT ON COLUMN nll_by_position.nll IS
    'Mean over all planned seeds, in nats; NULL if one is not done.';
COMMENT ON COLUMN nll_by_position.lowest IS 'Lowest seed; NULL if one is not done.';
COMMENT ON COLUMN nll_by_position.highest IS 'Highest seed; NULL if one is not done.';
COMMENT ON COLUMN nll_by_position.num_seeds IS 'Seeds that are done.';
COMMENT ON COLUMN nll_by_position.num_planned IS 'Seeds that are planned.';
COMMENT ON COLUMN nll_by_position.value_of_done IS
    'Mean over the seeds that are done, however many; not to be compared.';
COMMENT ON COLUMN nll_by_position.missing IS
    'Which seeds are not done, and why; NULL if all are done.';
COMMENT ON COLUMN nll_by_position.task_set IS 'Id of the planned parts; see task_sets.';
