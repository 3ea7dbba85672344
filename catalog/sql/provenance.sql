CREATE VIEW trainings AS FROM store.loss ORDER BY rowid;

COMMENT ON VIEW trainings IS
    'Loss logs of training runs, one row per logged step; join on checkpoint with scores.';

CREATE VIEW artifacts AS
SELECT * EXCLUDE (plugins)
FROM store.artifact
ORDER BY kind, name, artifact;

COMMENT ON VIEW artifacts IS
    'All artifacts in the store (training rows, held-out text, checkpoints, cells, ...), also those of no study.';

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
