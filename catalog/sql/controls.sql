CREATE VIEW verifications AS
SELECT
    c.study,
    c.base_model,
    c.method,
    c.frozen,
    c.seed,
    c.benchmark,
    c.task,
    v.metric,
    c.eval_length,
    v.committed,
    v.again,
    abs(v.committed - v.again) AS difference,
    v.num_samples,
    v.num_same_samples,
    v.largest_sample_difference,
    v.largest_nll_difference,
    v.identical,
    v.agrees,
    v.tolerance,
    v.same_environment,
    v.environment,
    v.error,
    v.cell,
    v.committed_at,
    v.verified_at
FROM store.verification v
LEFT JOIN store.cell c ON c.cell = v.cell
ORDER BY c.study, c.position, v.verified_at, v.rowid;

COMMENT ON VIEW verifications IS
    'Comparisons of cells that lce verify recomputed with the stored results, one row per study, cell, comparison and metric.';

CREATE VIEW control_violations AS
WITH RECURSIVE
done AS (
    SELECT c.*, a.spec, a.result, a.environment
    FROM store.cell c
    JOIN store.artifact a ON a.artifact = c.cell
    WHERE c.status = 'done'
),
-- Training runs behind a checkpoint: itself, earlier stages, and the training of the base model.
runs AS (
    SELECT DISTINCT checkpoint, checkpoint AS run FROM done WHERE checkpoint IS NOT NULL
    UNION
    SELECT r.checkpoint, e.parent
    FROM runs r
    JOIN store.edge e ON e.child = r.run
    JOIN store.artifact p ON p.artifact = e.parent
    WHERE p.kind IN ('finetune', 'base')
),
trained AS (
    SELECT
        r.checkpoint,
        sum((a.result->>'tokens')::BIGINT) FILTER (a.kind = 'finetune') AS tokens,
        any_value(r.run) FILTER (a.kind = 'base') AS base
    FROM runs r
    JOIN store.artifact a ON a.artifact = r.run
    GROUP BY r.checkpoint
),
places AS (
    SELECT
        e.environment,
        e.git_commit || CASE WHEN e.git_dirty THEN ' with changes' ELSE '' END AS code,
        e.python,
        e.platform,
        CASE
            WHEN e.accelerators != '' THEN e.accelerators
            ELSE e.cpu || coalesce(', ' || e.instructions, '')
        END AS hardware,
        e.libraries::JSON::MAP(VARCHAR, VARCHAR) AS libraries
    FROM store.environment e
),
libraries AS (
    SELECT p.environment, k.name, p.libraries[k.name] AS version
    FROM places p
    CROSS JOIN (SELECT DISTINCT unnest(map_keys(libraries)) AS name FROM places) k
),
ran AS (
    SELECT study, position, cell, cell AS step FROM done
    UNION ALL
    SELECT d.study, d.position, d.cell, r.run
    FROM done d
    JOIN runs r ON r.checkpoint = d.checkpoint
),
-- Code of users' own plug-ins, by artifact.
own_plugins AS (
    SELECT
        a.artifact,
        unnest(map_entries(a.plugins::JSON::MAP(VARCHAR, JSON))) AS plugin
    FROM store.artifact a
    WHERE a.plugins != '{}'
),
facts AS (
    -- Benchmark, inputs and environment of a cell, compared among all methods. A method with
    -- approximate attention has its own kernel, which is not compared (among is NULL).
    SELECT d.study, d.position, d.cell, f.factor, f.among, f.value
    FROM done d
    LEFT JOIN store.edge h ON h.child = d.cell AND h.role = 'held_out'
    LEFT JOIN trained t ON t.checkpoint = d.checkpoint
    JOIN places p ON p.environment = d.environment
    CROSS JOIN LATERAL (
        VALUES
            ('benchmark', 'all', (d.spec->'benchmark')::VARCHAR),
            ('evaluation', 'all', (d.spec->'evaluation')::VARCHAR),
            ('data', 'all', d.spec->>'data'),
            ('held-out text', 'all', h.parent),
            ('target context', 'all', d.target_context::VARCHAR),
            ('tokens in a pass', 'all', d.result->'passes'->>'batch_tokens'),
            ('weights', 'seed ' || d.seed, coalesce(t.base, d.spec->>'weights')),
            ('kernel', CASE WHEN d.exact_attention THEN 'exact attention' END, d.result->>'kernel'),
            ('code', 'all', p.code),
            ('python', 'all', p.python),
            ('platform', 'all', p.platform),
            ('hardware', 'all', p.hardware)
    ) f (factor, among, value)
    UNION ALL
    SELECT d.study, d.position, d.cell, 'library ' || l.name, 'all', l.version
    FROM done d
    JOIN libraries l ON l.environment = d.environment
    UNION ALL
    -- Plug-in code that changed while its VERSION stayed the same: the user kept the old results.
    SELECT DISTINCT
        r.study,
        r.position,
        r.cell,
        'code of ' || o.plugin.key || ' VERSION ' || (o.plugin.value->>'version'),
        'all',
        left(o.plugin.value->>'sha256', 12)
    FROM ran r
    JOIN own_plugins o ON o.artifact = r.step
    UNION ALL
    -- Training of the weights, compared among fine-tuned methods.
    SELECT d.study, d.position, d.cell, f.factor, f.among, f.value
    FROM done d
    JOIN trained t ON t.checkpoint = d.checkpoint
    JOIN store.artifact a ON a.artifact = d.checkpoint
    JOIN places p ON p.environment = a.environment
    JOIN store.study s ON s.study = d.study AND s.base_model = d.base_model
    LEFT JOIN store.edge e ON e.child = d.checkpoint AND e.role = 'rows'
    LEFT JOIN store.artifact r ON r.artifact = e.parent
    CROSS JOIN LATERAL (
        VALUES
            ('training tokens', CASE WHEN s.match = 'tokens' THEN 'tuned' END, t.tokens::VARCHAR),
            ('training recipe', 'tuned', (a.spec->'training')::VARCHAR),
            ('training length', 'tuned', d.train_length::VARCHAR),
            ('training positions', 'tuned', coalesce(a.spec->>'train_positions', 'exact')),
            ('training precision', 'tuned', a.result->>'state_precision'),
            ('training corpus', 'tuned', (r.spec->'corpus')::VARCHAR || (r.spec->>'digest')),
            ('training upsampling', 'tuned', (r.spec->'upsampling')::VARCHAR),
            (
                'training kernel',
                CASE WHEN d.exact_attention THEN 'tuned, exact attention' END,
                a.result->>'attention_kernel'
            ),
            ('training code', 'tuned', p.code),
            ('training hardware', 'tuned', p.hardware)
    ) f (factor, among, value)
    WHERE NOT d.frozen
    UNION ALL
    SELECT d.study, d.position, d.cell, 'training library ' || l.name, 'tuned', l.version
    FROM done d
    JOIN store.artifact a ON a.artifact = d.checkpoint
    JOIN libraries l ON l.environment = a.environment
    WHERE NOT d.frozen
),
counted AS (
    SELECT
        d.study,
        d.base_model,
        d.benchmark,
        d.task,
        d.eval_length,
        f.factor,
        f.among,
        f.value,
        count(*) AS num_cells,
        min(d.position) AS position,
        string_agg(
            DISTINCT variant_label(d.method, d.frozen), ', '
            ORDER BY variant_label(d.method, d.frozen)
        ) AS methods
    FROM facts f
    JOIN done d ON d.study = f.study AND d.position = f.position
    WHERE f.among IS NOT NULL
    GROUP BY ALL
),
ranked AS (
    SELECT
        *,
        first_value(value) OVER compared AS usual,
        first_value(num_cells) OVER compared AS num_usual,
        row_number() OVER compared AS rank
    FROM counted
    WINDOW compared AS (
        PARTITION BY study, base_model, benchmark, task, eval_length, factor, among
        ORDER BY num_cells DESC, position
    )
)
SELECT
    study,
    base_model,
    benchmark,
    task,
    eval_length,
    factor,
    among,
    value,
    num_cells,
    methods,
    usual,
    num_usual
FROM ranked
WHERE rank > 1
ORDER BY study, factor, base_model, benchmark, task, eval_length, among, rank;

COMMENT ON VIEW control_violations IS
    'Differences, other than the method, between done cells that are compared: one row per study, base model, task, length, factor and deviating value. Empty if everything is controlled.';
