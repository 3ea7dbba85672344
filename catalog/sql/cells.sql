CREATE VIEW studies AS
SELECT
    s.*,
    (SELECT count(*) FROM store.cell c
     WHERE c.study = s.study AND c.base_model = s.base_model) AS num_cells,
    (SELECT count(*) FROM store.cell c
     WHERE c.study = s.study AND c.base_model = s.base_model AND c.status = 'done') AS num_done
FROM store.study s
ORDER BY study, rowid;

COMMENT ON VIEW studies IS 'Studies as last planned, one row per study and base model.';

CREATE VIEW plugins AS FROM store.plugin ORDER BY rowid;

COMMENT ON VIEW plugins IS
    'What each method and benchmark of a study is, one row per method and per profile of a benchmark.';

CREATE VIEW cells AS
SELECT
    c.* EXCLUDE (position, exact_attention, profile, checkpoint),
    variant_name(method, frozen) AS variant,
    no_context,
    local_context
FROM store.cell c
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

CREATE VIEW searches AS FROM store.search ORDER BY rowid;

COMMENT ON VIEW searches IS
    'Searches for parameters that methods leave open, such as LongRoPE''s factors, with the parameters found.';

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
