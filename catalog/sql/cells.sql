CREATE VIEW studies AS
SELECT
    study,
    hypothesis,
    target_context,
    base_model,
    trained_context,
    (SELECT count(*) FROM store.cell c
     WHERE c.study = s.study AND c.base_model = s.base_model) AS num_cells,
    (SELECT count(*) FROM store.cell c
     WHERE c.study = s.study AND c.base_model = s.base_model AND c.status = 'done') AS num_done
FROM store.study s
ORDER BY study, rowid;

COMMENT ON VIEW studies IS 'Studies as last planned, one row per study and base model.';
COMMENT ON COLUMN studies.study IS 'Name of the study.';
COMMENT ON COLUMN studies.hypothesis IS 'What the study expects to find, written before it ran.';
COMMENT ON COLUMN studies.target_context IS
    'Context the methods extend to, in tokens, where cells says of none that it has its own.';
COMMENT ON COLUMN studies.base_model IS 'Registered name of the base model.';
COMMENT ON COLUMN studies.trained_context IS 'Context the base model was trained at, in tokens.';
COMMENT ON COLUMN studies.num_cells IS 'Cells of the study on this base model.';
COMMENT ON COLUMN studies.num_done IS 'How many of them are done.';

CREATE VIEW cells AS
SELECT
    study,
    base_model,
    method,
    seed,
    benchmark,
    task,
    eval_length,
    status,
    reason,
    attempts,
    seconds,
    cell,
    frozen,
    tokens,
    flops,
    predicted_tokens,
    predicted_flops,
    prompt_tokens_mean,
    prompt_tokens_min,
    prompt_tokens_max,
    data,
    train_length,
    target_context,
    family
FROM store.cell
ORDER BY study, position;

COMMENT ON VIEW cells IS 'Every planned cell and what became of it, one row per study and cell.';
COMMENT ON COLUMN cells.study IS 'Name of the study; a cell may belong to several.';
COMMENT ON COLUMN cells.base_model IS 'Registered name of the base model.';
COMMENT ON COLUMN cells.method IS 'Label of the context-extension method; none is the control.';
COMMENT ON COLUMN cells.seed IS 'Seed of training and sampling.';
COMMENT ON COLUMN cells.benchmark IS 'Registered name of the benchmark.';
COMMENT ON COLUMN cells.task IS 'Task of the benchmark.';
COMMENT ON COLUMN cells.eval_length IS 'Evaluated context in tokens, generated ones included.';
COMMENT ON COLUMN cells.status IS 'done, failed, missing or unavailable.';
COMMENT ON COLUMN cells.reason IS 'Why the cell is not done; NULL if it is.';
COMMENT ON COLUMN cells.attempts IS 'Attempts so far; 0 if none was made.';
COMMENT ON COLUMN cells.seconds IS 'Time the successful attempt took; NULL if not done.';
COMMENT ON COLUMN cells.cell IS
    'Id of the cell: first 12 hex digits of its fingerprint; NULL if unavailable by plan.';
COMMENT ON COLUMN cells.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN cells.tokens IS
    'Tokens of its windows, or of its prompts without their answers; what is shared counts each time.';
COMMENT ON COLUMN cells.flops IS
    'Forward FLOPs of these tokens by the cost model, with the attention of the method.';
COMMENT ON COLUMN cells.predicted_tokens IS 'The same tokens as predicted before the cell ran.';
COMMENT ON COLUMN cells.predicted_flops IS 'FLOPs as predicted before the cell ran.';
COMMENT ON COLUMN cells.prompt_tokens_mean IS
    'Tokens of its prompts without their answers (of its windows, where text is scored), their mean.';
COMMENT ON COLUMN cells.prompt_tokens_min IS 'Tokens of the shortest of them.';
COMMENT ON COLUMN cells.prompt_tokens_max IS 'Tokens of the longest of them.';
COMMENT ON COLUMN cells.data IS
    'Data sets that were read, by name, with "(subset)" where files hold a part on purpose; empty if none.';
COMMENT ON COLUMN cells.train_length IS
    'Tokens of the rows that the evaluated weights were last trained on.';
COMMENT ON COLUMN cells.target_context IS 'Context this method extends to, in tokens.';
COMMENT ON COLUMN cells.family IS
    'What the method changes: none, interpolation, base, dynamic or approximate; NULL if the method is of a folder of one''s own.';

CREATE VIEW missing_cells AS
SELECT
    study,
    base_model,
    method,
    frozen,
    seed,
    benchmark,
    task,
    eval_length,
    status,
    reason,
    attempts,
    cell
FROM store.cell
WHERE status <> 'done'
ORDER BY study, position;

COMMENT ON VIEW missing_cells IS 'Planned cells without a result, each with its reason.';
COMMENT ON COLUMN missing_cells.study IS 'Name of the study.';
COMMENT ON COLUMN missing_cells.base_model IS 'Registered name of the base model.';
COMMENT ON COLUMN missing_cells.method IS 'Label of the method.';
COMMENT ON COLUMN missing_cells.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN missing_cells.seed IS 'Seed of training and sampling.';
COMMENT ON COLUMN missing_cells.benchmark IS 'Registered name of the benchmark.';
COMMENT ON COLUMN missing_cells.task IS 'Task of the benchmark.';
COMMENT ON COLUMN missing_cells.eval_length IS 'Evaluated context in tokens.';
COMMENT ON COLUMN missing_cells.status IS
    'failed (it was tried), missing (not tried, or its artifact is damaged) or unavailable (it cannot be).';
COMMENT ON COLUMN missing_cells.reason IS 'Class and message of the failure, or what the cell waits for.';
COMMENT ON COLUMN missing_cells.attempts IS 'Failed attempts so far.';
COMMENT ON COLUMN missing_cells.cell IS 'Id of the cell; NULL if unavailable by plan.';
