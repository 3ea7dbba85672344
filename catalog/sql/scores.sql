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
    c.data
FROM store.cell c
JOIN store.score s ON s.cell = c.cell
JOIN store.artifact a ON a.artifact = c.cell
WHERE c.status = 'done'
ORDER BY c.study, c.position, s.rowid;

COMMENT ON VIEW scores IS 'Every score of every done cell, one row per study, cell and metric.';
COMMENT ON COLUMN scores.study IS 'Name of the study.';
COMMENT ON COLUMN scores.base_model IS 'Registered name of the base model.';
COMMENT ON COLUMN scores.method IS 'Label of the method; none is the control.';
COMMENT ON COLUMN scores.seed IS 'Seed of training and sampling.';
COMMENT ON COLUMN scores.train_length IS 'Tokens of the rows that the evaluated weights were last trained on.';
COMMENT ON COLUMN scores.benchmark IS 'Registered name of the benchmark.';
COMMENT ON COLUMN scores.task IS 'Task of the benchmark.';
COMMENT ON COLUMN scores.metric IS 'Name of the metric.';
COMMENT ON COLUMN scores.eval_length IS 'Evaluated context in tokens, generated ones included.';
COMMENT ON COLUMN scores.value IS 'The score, in the unit of the benchmark.';
COMMENT ON COLUMN scores.ci_low IS 'Lower bound of the 95 % interval over samples; NULL if none.';
COMMENT ON COLUMN scores.ci_high IS 'Upper bound of the 95 % interval over samples; NULL if none.';
COMMENT ON COLUMN scores.num_samples IS 'Samples behind the score.';
COMMENT ON COLUMN scores.higher_is_better IS 'Which direction is better.';
COMMENT ON COLUMN scores.exact_attention IS 'Whether every token can attend to every earlier one.';
COMMENT ON COLUMN scores.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN scores.profile IS 'Form of the benchmark: faithful, clean, fast or tiny.';
COMMENT ON COLUMN scores.cell IS 'Id of the cell.';
COMMENT ON COLUMN scores.checkpoint IS 'Artifact of the evaluated weights; NULL for weights of the hub.';
COMMENT ON COLUMN scores.created_at IS 'When the cell was finished, UTC.';
COMMENT ON COLUMN scores.is_default IS 'Whether this is the metric shown where there is room for one.';
COMMENT ON COLUMN scores.unit IS 'Unit of the value: perplexity, nats or accuracy (0 to 1).';
COMMENT ON COLUMN scores.kernel IS 'Attention kernel that computed the cell.';
COMMENT ON COLUMN scores.prompt_tokens_mean IS
    'Tokens of its prompts without their answers (of its windows, where text is scored), their mean.';
COMMENT ON COLUMN scores.prompt_tokens_min IS 'Tokens of the shortest of them.';
COMMENT ON COLUMN scores.prompt_tokens_max IS 'Tokens of the longest of them.';
COMMENT ON COLUMN scores.data IS
    'Data sets that were read, by name, with "(subset)" where files hold a part on purpose; empty if none.';

CREATE VIEW samples AS
SELECT
    cell,
    sample,
    eval_length,
    depth,
    num_prompt_tokens,
    prediction,
    reference,
    score,
    cluster,
    margin
FROM store.sample
ORDER BY rowid;

COMMENT ON VIEW samples IS 'Every scored request; join on cell to know its study and method.';
COMMENT ON COLUMN samples.cell IS 'Id of the cell.';
COMMENT ON COLUMN samples.sample IS
    'Number of the request: the same request in all cells that differ in the method only.';
COMMENT ON COLUMN samples.eval_length IS 'Evaluated context in tokens.';
COMMENT ON COLUMN samples.depth IS 'Where the evidence lies, 0 (start) to 100 (end); NULL if nowhere.';
COMMENT ON COLUMN samples.num_prompt_tokens IS 'Tokens of the prompt.';
COMMENT ON COLUMN samples.prediction IS 'What the model answered; NULL where text is only scored.';
COMMENT ON COLUMN samples.reference IS 'The right answer; NULL where text is only scored.';
COMMENT ON COLUMN samples.score IS 'Score of the request, in the unit of the benchmark.';
COMMENT ON COLUMN samples.cluster IS
    'Unit of resampling for intervals (document, article); NULL if every request is one.';
COMMENT ON COLUMN samples.margin IS
    'Log-probability of the right answer minus the mean of wrong answers, in nats; NULL if not compared.';

CREATE VIEW token_nll AS
SELECT cell, position_bin, nll FROM store.token_nll ORDER BY rowid;

COMMENT ON VIEW token_nll IS 'Negative log-likelihood by position in the context, per cell.';
COMMENT ON COLUMN token_nll.cell IS 'Id of the cell.';
COMMENT ON COLUMN token_nll.position_bin IS 'First position of the bin, in tokens.';
COMMENT ON COLUMN token_nll.nll IS 'Mean negative log-likelihood of the tokens in the bin, in nats.';
