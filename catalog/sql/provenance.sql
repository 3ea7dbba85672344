CREATE VIEW trainings AS FROM store.loss ORDER BY rowid;

COMMENT ON VIEW trainings IS
    'Loss logs of training runs, one row per logged step; join on checkpoint with scores.';
COMMENT ON COLUMN trainings.checkpoint IS 'Id of the training artifact.';
COMMENT ON COLUMN trainings.step IS 'Number of the optimiser step, counted from 1.';
COMMENT ON COLUMN trainings.tokens IS 'Number of training tokens seen after this step.';
COMMENT ON COLUMN trainings.loss IS 'Mean training loss of the step, in nats per token.';
COMMENT ON COLUMN trainings.learning_rate IS 'Learning rate of the step.';
COMMENT ON COLUMN trainings.tokens_per_second IS
    'Training speed in the step, in tokens per second over all processes.';
COMMENT ON COLUMN trainings.mfu IS
    'Model FLOPs utilisation in the step, 0 to 1; NULL if the device''s peak speed is unknown.';
COMMENT ON COLUMN trainings.grad_norm IS
    'Global norm of the gradients before clipping.';
COMMENT ON COLUMN trainings.peak_memory_bytes IS
    'Peak memory of the main process in bytes: of tensors on its GPU since the previous log entry; on a CPU, the largest resident set so far.';

CREATE VIEW artifacts AS
SELECT * EXCLUDE (plugins)
FROM store.artifact
ORDER BY kind, name, artifact;

COMMENT ON VIEW artifacts IS
    'All artifacts in the store (training rows, held-out text, checkpoints, cells, ...), also those of no study.';
COMMENT ON COLUMN artifacts.artifact IS
    'Id of the artifact: the first 12 hex digits of its fingerprint. The column cell holds a cell''s id, the column checkpoint a training run''s.';
COMMENT ON COLUMN artifacts.kind IS
    'Kind of the step that made the artifact, such as rows, finetune or cell.';
COMMENT ON COLUMN artifacts.name IS 'Readable name; not part of the identity.';
COMMENT ON COLUMN artifacts.folder IS
    'Path of the folder, relative to the store''s folder artifacts.';
COMMENT ON COLUMN artifacts.intact IS 'True if all files match the artifact''s record.';
COMMENT ON COLUMN artifacts.damage IS 'Reason why the artifact is damaged; NULL if it is intact.';
COMMENT ON COLUMN artifacts.num_files IS 'Number of files.';
COMMENT ON COLUMN artifacts.bytes IS 'Total size of the files in bytes.';
COMMENT ON COLUMN artifacts.attempts IS 'Number of attempts, including the successful one.';
COMMENT ON COLUMN artifacts.seconds IS
    'Compute time of the successful attempt in seconds, including work by other processes.';
COMMENT ON COLUMN artifacts.started_at IS 'Start of the successful attempt (UTC).';
COMMENT ON COLUMN artifacts.created_at IS 'End of the successful attempt (UTC).';
COMMENT ON COLUMN artifacts.environment IS
    'Id of the environment in which the artifact was made, as in environments.';
COMMENT ON COLUMN artifacts.spec IS 'Inputs of the step besides its parent artifacts, as JSON.';
COMMENT ON COLUMN artifacts.result IS 'Values that the step reported, as JSON.';
COMMENT ON COLUMN artifacts.execution IS
    'Way in which the step was executed (device, processes, ...), as JSON.';

CREATE VIEW edges AS
SELECT
    e.child,
    e.role,
    e.parent,
    c.kind AS child_kind,
    p.kind AS parent_kind
FROM store.edge e
JOIN store.artifact c ON c.artifact = e.child
LEFT JOIN store.artifact p ON p.artifact = e.parent
ORDER BY c.kind, e.child, e.role;

COMMENT ON VIEW edges IS
    'Lineage: one row per artifact (child) and artifact that it was made from (parent).';
COMMENT ON COLUMN edges.child IS 'Id of the artifact that was made.';
COMMENT ON COLUMN edges.role IS
    'Role of the parent for the child, such as rows, base or checkpoint.';
COMMENT ON COLUMN edges.parent IS 'Id of the artifact that the child was made from.';
COMMENT ON COLUMN edges.child_kind IS 'Kind of the step that made the child.';
COMMENT ON COLUMN edges.parent_kind IS
    'Kind of the step that made the parent; NULL if the parent is no longer in the store.';

CREATE VIEW training_runs AS
WITH RECURSIVE run AS (
    SELECT DISTINCT study, base_model, method, frozen, checkpoint, true AS is_last
    FROM scores
    WHERE checkpoint IS NOT NULL
    UNION
    SELECT r.study, r.base_model, r.method, r.frozen, e.parent, false
    FROM run r
    JOIN edges e ON e.child = r.checkpoint AND e.role = 'base'
),
corpus AS (
    SELECT e.child AS checkpoint, any_value(a.spec->>'$.corpus.name') AS corpus
    FROM edges e
    JOIN artifacts a ON a.artifact = e.parent
    WHERE e.role = 'rows'
    GROUP BY ALL
)
SELECT
    r.study,
    r.base_model,
    r.method,
    r.frozen,
    r.checkpoint,
    a.kind = 'finetune' AS is_finetuning,
    r.is_last,
    c.corpus,
    (a.spec->'$.num_steps')::BIGINT AS num_steps,
    (a.spec->'$.row_length')::BIGINT AS row_length,
    a.spec->>'$.training' AS settings,
    a.seconds,
    variant_name(r.method, r.frozen) AS variant
FROM run r
JOIN artifacts a ON a.artifact = r.checkpoint
LEFT JOIN corpus c USING (checkpoint)
ORDER BY r.study, r.base_model, r.method, r.frozen, a.created_at;

COMMENT ON VIEW training_runs IS
    'Training runs behind the scores of each method: its fine-tuning, with all stages, and the training of its base model if the study trains it. A run that several methods share has one row for each.';
COMMENT ON COLUMN training_runs.checkpoint IS 'Id of the training artifact.';
COMMENT ON COLUMN training_runs.is_finetuning IS
    'True for the fine-tuning, false for the training of the base model.';
COMMENT ON COLUMN training_runs.is_last IS
    'True if the scores are those of this run''s weights; false for earlier stages.';
COMMENT ON COLUMN training_runs.corpus IS 'Registered name of the training text.';
COMMENT ON COLUMN training_runs.num_steps IS 'Number of optimiser steps.';
COMMENT ON COLUMN training_runs.row_length IS 'Length of a training row in tokens.';
COMMENT ON COLUMN training_runs.settings IS
    'Settings of the optimiser, as JSON: peak learning_rate, tokens_per_step and more.';
COMMENT ON COLUMN training_runs.seconds IS 'Compute time in seconds.';

CREATE VIEW costs AS
WITH memory AS (
    SELECT checkpoint, max(peak_memory_bytes) / 1e9 AS peak_memory_gb
    FROM trainings
    GROUP BY checkpoint
),
trained AS (
    SELECT study, base_model, method, frozen,
        count(*) FILTER (is_last) AS num_runs,
        sum(seconds) AS train_seconds,
        max(peak_memory_gb) AS peak_memory_gb
    FROM training_runs
    LEFT JOIN memory USING (checkpoint)
    WHERE is_finetuning
    GROUP BY ALL
),
evaluated AS (
    SELECT study, base_model, method, frozen, variant,
        count(*) FILTER (status = 'done') AS num_cells,
        sum(seconds) AS eval_seconds,
        sum(tokens)::BIGINT AS eval_tokens,
        sum(flops) AS eval_flops,
        any_value(train_tokens) AS tokens_of_run,
        any_value(train_flops) AS flops_of_run
    FROM (
        -- Seeds with the same cell id share one result; count its cost once.
        SELECT DISTINCT ON (study, base_model, method, frozen, cell) * FROM cells
    )
    GROUP BY ALL
)
SELECT
    study,
    base_model,
    method,
    frozen,
    variant,
    tokens_of_run * coalesce(num_runs, 1) AS train_tokens,
    flops_of_run * coalesce(num_runs, 1) AS train_flops,
    train_seconds,
    peak_memory_gb,
    num_cells,
    eval_seconds,
    eval_tokens,
    eval_flops
FROM evaluated
LEFT JOIN trained USING (study, base_model, method, frozen)
ORDER BY study, base_model, method, frozen;

COMMENT ON VIEW costs IS
    'Cost of each method in a study, summed over its seeds. Before a training run is done, the tokens and FLOPs are those of one run.';
COMMENT ON COLUMN costs.train_tokens IS
    'Tokens of the method''s fine-tuning; NULL if the study does not fine-tune the weights.';
COMMENT ON COLUMN costs.train_flops IS
    'FLOPs of the fine-tuning by the cost model; NULL where train_tokens is.';
COMMENT ON COLUMN costs.train_seconds IS
    'Compute time of the fine-tuning in seconds, all stages together. It depends on what else the machine did.';
COMMENT ON COLUMN costs.peak_memory_gb IS
    'Largest memory of the fine-tuning in GB: of tensors on one GPU; on a CPU of the whole process, whose earlier trainings count too, so it does not compare methods.';
COMMENT ON COLUMN costs.num_cells IS 'Number of cells that are done.';
COMMENT ON COLUMN costs.eval_seconds IS 'Compute time of the done cells in seconds.';
COMMENT ON COLUMN costs.eval_tokens IS 'Tokens of the done cells.';
COMMENT ON COLUMN costs.eval_flops IS 'FLOPs of the done cells by the cost model.';

CREATE VIEW environments AS
SELECT
    e.*,
    count(*) AS num_artifacts,
    min(a.started_at) AS first_used,
    max(a.created_at) AS last_used
FROM store.environment e
JOIN store.artifact a USING (environment)
GROUP BY ALL
ORDER BY min(a.started_at), e.environment;

COMMENT ON VIEW environments IS
    'Code, libraries and hardware with which artifacts were made, one row per distinct environment.';
COMMENT ON COLUMN environments.environment IS
    'Id of the environment: the first 12 hex digits of a digest of its description.';
COMMENT ON COLUMN environments.git_commit IS
    'Git commit of the code; NULL if it did not run from a checkout.';
COMMENT ON COLUMN environments.git_dirty IS
    'True if tracked files differed from the commit; NULL if the code did not run from a checkout.';
COMMENT ON COLUMN environments.host IS 'Name of the machine.';
COMMENT ON COLUMN environments.platform IS 'Operating system with its version.';
COMMENT ON COLUMN environments.python IS 'Version of Python.';
COMMENT ON COLUMN environments.cpu IS 'Model name of the processor.';
COMMENT ON COLUMN environments.cpu_count IS 'Number of logical processors of the machine.';
COMMENT ON COLUMN environments.instructions IS
    'Vector instruction set of torch''s CPU kernels, such as AVX2 or AVX512; NULL if torch was not loaded.';
COMMENT ON COLUMN environments.accelerators IS
    'Names of the GPUs, separated by commas; empty if torch saw none.';
COMMENT ON COLUMN environments.libraries IS
    'Version of each library, as JSON; read one with json_extract_string(libraries, ''torch'').';
COMMENT ON COLUMN environments.switches IS
    'Environment variables from which libraries choose kernels or precision, such as NVIDIA_TF32_OVERRIDE, as JSON; {} if the user set none.';
COMMENT ON COLUMN environments.num_artifacts IS 'Number of artifacts made in this environment.';
COMMENT ON COLUMN environments.first_used IS
    'Earliest start of an artifact made in this environment (UTC).';
COMMENT ON COLUMN environments.last_used IS
    'Latest end of an artifact made in this environment (UTC).';
