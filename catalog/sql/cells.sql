CREATE VIEW studies AS
SELECT
    study,
    hypothesis,
    target_context,
    base_model,
    trained_context,
    base_note,
    looks,
    match,
    arguments,
    (SELECT count(*) FROM store.cell c
     WHERE c.study = s.study AND c.base_model = s.base_model) AS num_cells,
    (SELECT count(*) FROM store.cell c
     WHERE c.study = s.study AND c.base_model = s.base_model AND c.status = 'done') AS num_done
FROM store.study s
ORDER BY study, rowid;

COMMENT ON VIEW studies IS 'Studies as last planned, one row per study and base model.';
COMMENT ON COLUMN studies.hypothesis IS
    'Finding that the study expects, written before it ran; NULL if the study states none.';
COMMENT ON COLUMN studies.target_context IS
    'Context length in tokens to which methods extend the model, unless cells has another for a method.';
COMMENT ON COLUMN studies.trained_context IS
    'Context length in tokens with which the base model was trained; NULL if unknown.';
COMMENT ON COLUMN studies.base_note IS
    'What is special about the base model, such as RoPE that is already scaled; NULL for most models.';
COMMENT ON COLUMN studies.looks IS
    'Numbers of seeds after which the study tests its expectations; NULL if it tests them only after all seeds.';
COMMENT ON COLUMN studies.match IS
    'Training budget that is equal for all tuned methods: tokens, or flops.';
COMMENT ON COLUMN studies.arguments IS
    'Arguments of lce run that compute the study: its name or file, and folders of plug-ins, data and models.';
COMMENT ON COLUMN studies.num_cells IS 'Number of the study''s planned cells on this base model.';
COMMENT ON COLUMN studies.num_done IS
    'Number of the study''s cells on this base model that are done.';

CREATE VIEW plugins AS FROM store.plugin ORDER BY rowid;

COMMENT ON VIEW plugins IS
    'What each method and benchmark of a study is, one row per method and per profile of a benchmark.';
COMMENT ON COLUMN plugins.part IS 'Part of the study: method or benchmark.';
COMMENT ON COLUMN plugins.name IS
    'Registered name, as in the columns method_name and benchmark of cells.';
COMMENT ON COLUMN plugins.summary IS 'What it is, in one line.';
COMMENT ON COLUMN plugins.profile_summary IS
    'What the profile evaluates, in one line; NULL for a method.';
COMMENT ON COLUMN plugins.source IS
    'Paper that defines it: arXiv:..., doi:... or the address of a page; own if there is none.';
COMMENT ON COLUMN plugins.place IS 'Section, equation or table of the paper.';

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
    family,
    method_name,
    learning_rate,
    kind,
    train_tokens,
    train_flops,
    variant_name(method, frozen) AS variant,
    no_context,
    local_context
FROM store.cell
LEFT JOIN (
    SELECT cell,
        any_value(value) FILTER (metric = 'no_context') AS no_context,
        any_value(value) FILTER (metric = 'local_context') AS local_context
    FROM store.score
    WHERE metric IN ('no_context', 'local_context')
    GROUP BY cell
) USING (cell)
ORDER BY study, position;

COMMENT ON VIEW cells IS
    'Planned cells with their state and cost, one row per study and cell. A cell is one task at one length for one variant of a model and one seed.';
COMMENT ON COLUMN cells.study IS
    'Name of the study. A cell that several studies share has one row per study.';
COMMENT ON COLUMN cells.status IS
    'State of the cell: done, failed, missing (not computed, or damaged) or unavailable (cannot be computed).';
COMMENT ON COLUMN cells.reason IS 'Reason why the cell is not done; NULL if it is done.';
COMMENT ON COLUMN cells.attempts IS
    'Number of attempts so far, including a successful one; 0 if none.';
COMMENT ON COLUMN cells.seconds IS
    'Compute time of the successful attempt in seconds, including work by other processes; NULL if the cell is not done.';
COMMENT ON COLUMN cells.cell IS
    'Id of the cell: the first 12 hex digits of its fingerprint; NULL if the plan already marks the cell as unavailable.';
COMMENT ON COLUMN cells.tokens IS
    'Number of tokens in the cell''s prompts (without answers) or text windows; shared text counts in each of them. NULL if the cell is not done.';
COMMENT ON COLUMN cells.flops IS
    'FLOPs of the forward passes over these tokens by the cost model, with the method''s attention; NULL if the cell is not done.';
COMMENT ON COLUMN cells.predicted_tokens IS
    'Number of tokens that was predicted before the cell ran; NULL if the cell is not done.';
COMMENT ON COLUMN cells.predicted_flops IS
    'FLOPs that were predicted before the cell ran; NULL if the cell is not done.';
COMMENT ON COLUMN cells.target_context IS
    'Context length in tokens to which the method extends the model.';
COMMENT ON COLUMN cells.family IS
    'What the method changes: none, interpolation (RoPE frequencies), base (RoPE base), dynamic (either, depending on the request''s length) or approximate (attention); NULL for a plug-in that is not installed.';

COMMENT ON COLUMN cells.method_name IS
    'Registered name of the method, which entries with different labels share.';
COMMENT ON COLUMN cells.learning_rate IS
    'Peak learning rate with which the study fine-tuned the weights; for a variant at its own best value, the chosen rate. NULL if the study does not fine-tune the weights, or until the rate is chosen.';
COMMENT ON COLUMN cells.train_tokens IS
    'Tokens of the method''s own training runs with one seed; NULL if the study does not fine-tune the weights.';
COMMENT ON COLUMN cells.train_flops IS
    'FLOPs of these training runs by the cost model, without recomputed activations; NULL where train_tokens is.';

CREATE VIEW trials AS
SELECT
    study,
    base_model,
    method,
    method_name,
    field,
    value,
    nll,
    chosen,
    chosen AND value IN (
        min(value) OVER (PARTITION BY study, choice), max(value) OVER (PARTITION BY study, choice)
    ) AS at_edge,
    common_method,
    common_value,
    seed,
    choice
FROM store.trial
ORDER BY store.trial.rowid;

COMMENT ON VIEW trials IS
    'Trials of a study''s `tune`: validation loss of each tuned method with each value of the grid.';
COMMENT ON COLUMN trials.method IS
    'Label of the variant that trains with the chosen value, as in the view cells.';
COMMENT ON COLUMN trials.method_name IS 'Registered name of the method.';
COMMENT ON COLUMN trials.field IS 'Tuned training setting, such as learning_rate.';
COMMENT ON COLUMN trials.value IS 'Tried value of this setting.';
COMMENT ON COLUMN trials.nll IS
    'Mean negative log-likelihood on validation text in nats per token, domains weighted equally; NULL until all trials of the method are done.';
COMMENT ON COLUMN trials.chosen IS
    'True for the value with the lowest validation loss; NULL until all trials of the method are done.';
COMMENT ON COLUMN trials.at_edge IS
    'True if the chosen value is the smallest or largest of the grid, so that a better one may lie outside.';
COMMENT ON COLUMN trials.common_method IS
    'Label of the variant with the same method that trains with the study''s common value.';
COMMENT ON COLUMN trials.common_value IS 'The study''s common value of this setting.';
COMMENT ON COLUMN trials.seed IS 'Seed of the trials, which differs from every seed of the study.';
COMMENT ON COLUMN trials.choice IS
    'Id of the step that chose the value: the first 12 hex digits of its fingerprint.';

CREATE VIEW searches AS
SELECT
    study,
    base_model,
    method,
    method_name,
    frozen,
    seed,
    start_loss,
    loss,
    num_trials,
    parameters,
    search
FROM store.search
ORDER BY store.search.rowid;

COMMENT ON VIEW searches IS
    'Searches for parameters that methods leave open, such as LongRoPE''s factors, with the parameters found.';
COMMENT ON COLUMN searches.method IS
    'Label of the variant, as in the view cells; variants with equal searches share the row of the first.';
COMMENT ON COLUMN searches.method_name IS 'Registered name of the method.';
COMMENT ON COLUMN searches.seed IS 'Seed of the evaluated weights; the search has a seed of its own.';
COMMENT ON COLUMN searches.start_loss IS
    'Lowest loss of the parameters with which the search started, in nats per scored token of validation text; NULL until the search is done.';
COMMENT ON COLUMN searches.loss IS
    'Loss of the parameters found, in nats per scored token of validation text; NULL until the search is done.';
COMMENT ON COLUMN searches.num_trials IS
    'Number of parameter values whose loss was measured; NULL until the search is done.';
COMMENT ON COLUMN searches.parameters IS 'Parameters found, as JSON; NULL until the search is done.';
COMMENT ON COLUMN searches.search IS
    'Id of the step: the first 12 hex digits of its fingerprint.';

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

COMMENT ON VIEW missing_cells IS 'Planned cells without a result, with the reason.';
COMMENT ON COLUMN missing_cells.status IS
    'State of the cell: failed (its last attempt), missing (not computed, or damaged) or unavailable (cannot be computed).';
COMMENT ON COLUMN missing_cells.reason IS
    'Class and message of the failure, the damage, the step that must be computed first, or why the cell cannot be computed.';
COMMENT ON COLUMN missing_cells.attempts IS 'Number of failed attempts so far.';
COMMENT ON COLUMN missing_cells.cell IS
    'Id of the cell: the first 12 hex digits of its fingerprint; NULL if the plan already marks the cell as unavailable.';
