CREATE VIEW trainings AS
SELECT
    checkpoint,
    step,
    tokens,
    loss,
    learning_rate,
    tokens_per_second,
    mfu,
    grad_norm,
    peak_memory_bytes
FROM store.loss
ORDER BY rowid;

COMMENT ON VIEW trainings IS 'Loss logs of the training runs; join on checkpoint with scores.';
COMMENT ON COLUMN trainings.checkpoint IS 'Artifact of the trained weights.';
COMMENT ON COLUMN trainings.step IS 'Optimiser step.';
COMMENT ON COLUMN trainings.tokens IS 'Tokens seen after this step.';
COMMENT ON COLUMN trainings.loss IS 'Training loss of the step, in nats per token.';
COMMENT ON COLUMN trainings.learning_rate IS 'Learning rate of the step.';
COMMENT ON COLUMN trainings.tokens_per_second IS 'Speed of the step.';
COMMENT ON COLUMN trainings.mfu IS
    'Model FLOPs utilisation, 0 to 1; NULL where the peak of the device is not known.';
COMMENT ON COLUMN trainings.grad_norm IS
    'Norm of all gradients before clipping; NULL in logs of earlier versions.';
COMMENT ON COLUMN trainings.peak_memory_bytes IS
    'Most bytes of tensors on the main process''s GPU in the step; on a CPU its largest resident set.';

CREATE VIEW artifacts AS
SELECT
    artifact,
    kind,
    name,
    folder,
    intact,
    damage,
    num_files,
    bytes,
    attempts,
    seconds,
    started_at,
    created_at,
    environment,
    spec,
    result,
    execution
FROM store.artifact
ORDER BY kind, name, artifact;

COMMENT ON VIEW artifacts IS
    'Everything the store holds: rows, held-out text, checkpoints and cells, also of no study.';
COMMENT ON COLUMN artifacts.artifact IS
    'First 12 hex digits of the fingerprint: the cell of a cell, the checkpoint of a training run.';
COMMENT ON COLUMN artifacts.kind IS 'Kind of step, such as rows, finetune or cell.';
COMMENT ON COLUMN artifacts.name IS 'Readable name; not part of the identity.';
COMMENT ON COLUMN artifacts.folder IS 'Folder below the artifacts folder of the store.';
COMMENT ON COLUMN artifacts.intact IS 'Whether every file is as its record says.';
COMMENT ON COLUMN artifacts.damage IS 'What is wrong with it; NULL if intact.';
COMMENT ON COLUMN artifacts.num_files IS 'Files of the artifact.';
COMMENT ON COLUMN artifacts.bytes IS 'Size of all files.';
COMMENT ON COLUMN artifacts.attempts IS 'Attempts it took, the successful one included.';
COMMENT ON COLUMN artifacts.seconds IS 'Time the successful attempt took.';
COMMENT ON COLUMN artifacts.started_at IS 'Start of the successful attempt, UTC.';
COMMENT ON COLUMN artifacts.created_at IS 'When it was finished, UTC.';
COMMENT ON COLUMN artifacts.environment IS 'Id of the environment it was made in.';
COMMENT ON COLUMN artifacts.spec IS 'JSON: what the step depends on besides its parents.';
COMMENT ON COLUMN artifacts.result IS 'JSON: what the step reports.';
COMMENT ON COLUMN artifacts.execution IS 'JSON: how it was carried out (device, processes, ...).';

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

COMMENT ON VIEW edges IS 'Lineage: which artifact was made from which.';
COMMENT ON COLUMN edges.child IS 'The artifact that was made.';
COMMENT ON COLUMN edges.role IS 'What the parent was to it (rows, base, checkpoint, ...).';
COMMENT ON COLUMN edges.parent IS 'The artifact it was made from.';
COMMENT ON COLUMN edges.child_kind IS 'Kind of the child.';
COMMENT ON COLUMN edges.parent_kind IS 'Kind of the parent; NULL if it is no longer in the store.';

CREATE VIEW environments AS
SELECT
    e.environment,
    e.git_commit,
    e.git_dirty,
    e.host,
    e.platform,
    e.python,
    e.cpu,
    e.cpu_count,
    e.instructions,
    e.accelerators,
    e.libraries,
    count(*) AS num_artifacts,
    min(a.started_at) AS first_used,
    max(a.created_at) AS last_used
FROM store.environment e
JOIN store.artifact a ON a.environment = e.environment
GROUP BY ALL
ORDER BY min(a.started_at), e.environment;

COMMENT ON VIEW environments IS
    'Code, libraries and hardware that made the artifacts, one row per distinct environment.';
COMMENT ON COLUMN environments.environment IS 'Id: 12 hex digits of a digest of all of it.';
COMMENT ON COLUMN environments.git_commit IS 'Commit of the code; NULL outside a checkout.';
COMMENT ON COLUMN environments.git_dirty IS 'Whether the checkout had changes that are not in the commit.';
COMMENT ON COLUMN environments.host IS 'Name of the machine.';
COMMENT ON COLUMN environments.platform IS 'Operating system.';
COMMENT ON COLUMN environments.python IS 'Version of Python.';
COMMENT ON COLUMN environments.cpu IS 'Model of the processor.';
COMMENT ON COLUMN environments.cpu_count IS 'Logical processors of the machine.';
COMMENT ON COLUMN environments.instructions IS
    'Vector instructions of the processor that torch used: AVX2, AVX512, DEFAULT. NULL if torch was not loaded, or an earlier version did not say.';
COMMENT ON COLUMN environments.accelerators IS
    'Names of the GPUs, separated by commas; empty if none was used.';
COMMENT ON COLUMN environments.libraries IS
    'JSON: version by library, as in json_extract_string(libraries, ''torch'').';
COMMENT ON COLUMN environments.num_artifacts IS 'Artifacts made in it.';
COMMENT ON COLUMN environments.first_used IS 'Start of the first of them, UTC.';
COMMENT ON COLUMN environments.last_used IS 'End of the last of them, UTC.';
