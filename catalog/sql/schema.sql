-- Tables of the catalog, filled from the store's records and plans, and macros of the views.
-- Queries should read the views of the main schema: these tables may change between versions.
-- The comments of the views' columns are in columns.yaml.

CREATE SCHEMA store;

-- The functions of these names in lce_core/study/variants.py return the same.
CREATE MACRO variant_label(method, frozen) AS CASE WHEN frozen THEN method ELSE method || ' tuned' END;
CREATE MACRO variant_name(method, frozen) AS CASE WHEN frozen THEN method ELSE method || '-tuned' END;

-- A mean over some of the planned cells is not comparable, so it is NULL until all are done.
CREATE MACRO if_complete(mean, num_done, num_planned) AS
    CASE WHEN num_done = num_planned THEN mean END;

-- Sort key that puts the best value first.
CREATE MACRO best_first(value, higher_is_better) AS
    CASE WHEN higher_is_better THEN -value ELSE value END;

-- Aggregate: the sorted parts (see store.part) of a mean, and their digest.
CREATE MACRO part_list(part) AS string_agg(part, ' ' ORDER BY part);
CREATE MACRO task_set_id(part) AS left(sha256(part_list(part)), 12);

CREATE TABLE store.study (
    study VARCHAR NOT NULL,
    hypothesis VARCHAR,
    target_context BIGINT NOT NULL,
    base_model VARCHAR NOT NULL,
    trained_context BIGINT,
    base_note VARCHAR,
    looks BIGINT[],
    match VARCHAR NOT NULL,
    arguments VARCHAR NOT NULL
);

CREATE TABLE store.plugin (
    study VARCHAR NOT NULL,
    part VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    profile VARCHAR,
    summary VARCHAR NOT NULL,
    profile_summary VARCHAR,
    source VARCHAR NOT NULL,
    place VARCHAR NOT NULL
);

CREATE TABLE store.expectation (
    study VARCHAR NOT NULL,
    entry BIGINT,
    text VARCHAR NOT NULL,
    claim VARCHAR,
    base_model VARCHAR NOT NULL,
    method VARCHAR,
    frozen BOOLEAN,
    expected VARCHAR NOT NULL,
    margin DOUBLE,
    other_method VARCHAR,
    other_frozen BOOLEAN,
    benchmark VARCHAR NOT NULL,
    eval_length BIGINT NOT NULL,
    metric VARCHAR,
    weight DOUBLE,
    among VARCHAR[]
);
COMMENT ON TABLE store.expectation IS
    'Comparisons that studies predict, one row per pair of methods, length and base model. Rows without methods are about the rank agreement of perplexity and the benchmark; entry is NULL for comparisons with the base model within its trained context, which every study makes.';

-- When this home first saw what. A schema of its own, because it does not depend on results.
CREATE SCHEMA history;

CREATE TABLE history.registration (
    study VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    registered_at TIMESTAMP NOT NULL,
    sha256 VARCHAR NOT NULL,
    results_before BIGINT NOT NULL,
    hypothesis VARCHAR,
    looks BIGINT[],
    entry BIGINT,
    text VARCHAR,
    claim VARCHAR,
    base_model VARCHAR,
    method VARCHAR,
    frozen BOOLEAN,
    expected VARCHAR,
    margin DOUBLE,
    other_method VARCHAR,
    other_frozen BOOLEAN,
    benchmark VARCHAR,
    eval_length BIGINT,
    metric VARCHAR,
    weight DOUBLE,
    among VARCHAR[]
);
COMMENT ON TABLE history.registration IS
    'Versions of a study''s hypothesis and expectations, one row per version and comparison.';

CREATE TABLE history.amendment (
    study VARCHAR NOT NULL,
    amended_at TIMESTAMP NOT NULL,
    results_before BIGINT NOT NULL,
    change VARCHAR NOT NULL
);

CREATE TABLE history.look (
    study VARCHAR NOT NULL,
    tested_at TIMESTAMP NOT NULL,
    base_model VARCHAR NOT NULL,
    method VARCHAR NOT NULL,
    frozen BOOLEAN NOT NULL,
    expected VARCHAR NOT NULL,
    margin DOUBLE,
    other_method VARCHAR NOT NULL,
    other_frozen BOOLEAN NOT NULL,
    benchmark VARCHAR NOT NULL,
    eval_length BIGINT NOT NULL,
    metric VARCHAR,
    look BIGINT NOT NULL,
    num_seeds BIGINT NOT NULL,
    level DOUBLE NOT NULL,
    p_adjusted DOUBLE NOT NULL,
    outcome VARCHAR NOT NULL
);
COMMENT ON TABLE history.look IS
    'Outcomes recorded by the looks at the last registered version of a study''s expectations, one row per look and comparison.';

CREATE TABLE store.cell (
    study VARCHAR NOT NULL,
    base_model VARCHAR NOT NULL,
    method VARCHAR NOT NULL,
    seed BIGINT NOT NULL,
    benchmark VARCHAR NOT NULL,
    task VARCHAR NOT NULL,
    eval_length BIGINT NOT NULL,
    status VARCHAR NOT NULL,
    reason VARCHAR,
    attempts BIGINT NOT NULL,
    seconds DOUBLE,
    cell VARCHAR,
    frozen BOOLEAN NOT NULL,
    tokens BIGINT,
    flops DOUBLE,
    predicted_tokens BIGINT,
    predicted_flops DOUBLE,
    prompt_tokens_mean DOUBLE,
    prompt_tokens_min BIGINT,
    prompt_tokens_max BIGINT,
    data VARCHAR,
    train_length BIGINT,
    target_context BIGINT,
    family VARCHAR,
    method_name VARCHAR,
    learning_rate DOUBLE,
    kind VARCHAR,
    train_tokens BIGINT,
    train_flops DOUBLE,
    position BIGINT NOT NULL,
    exact_attention BOOLEAN NOT NULL,
    profile VARCHAR,
    checkpoint VARCHAR
);
COMMENT ON TABLE store.cell IS
    'Planned cells with their state, one row per study and cell; position is the order in the study.';

CREATE TABLE store.trial (
    study VARCHAR NOT NULL,
    choice VARCHAR NOT NULL,
    base_model VARCHAR NOT NULL,
    method VARCHAR NOT NULL,
    method_name VARCHAR NOT NULL,
    common_method VARCHAR NOT NULL,
    common_value DOUBLE NOT NULL,
    seed BIGINT NOT NULL,
    field VARCHAR NOT NULL,
    value DOUBLE NOT NULL,
    nll DOUBLE,
    chosen BOOLEAN
);

CREATE TABLE store.search (
    study VARCHAR NOT NULL,
    base_model VARCHAR NOT NULL,
    method VARCHAR NOT NULL,
    method_name VARCHAR NOT NULL,
    frozen BOOLEAN NOT NULL,
    seed BIGINT NOT NULL,
    start_loss DOUBLE,
    loss DOUBLE,
    num_trials BIGINT,
    parameters VARCHAR,
    search VARCHAR NOT NULL
);

CREATE TABLE store.score (
    cell VARCHAR NOT NULL,
    metric VARCHAR NOT NULL,
    value DOUBLE NOT NULL,
    ci_low DOUBLE,
    ci_high DOUBLE,
    num_samples BIGINT NOT NULL,
    higher_is_better BOOLEAN NOT NULL,
    is_default BOOLEAN NOT NULL,
    unit VARCHAR,
    kernel VARCHAR
);
COMMENT ON TABLE store.score IS 'Scores of done cells, one row per metric.';

CREATE TABLE store.sample (
    cell VARCHAR NOT NULL,
    sample BIGINT NOT NULL,
    eval_length BIGINT NOT NULL,
    depth DOUBLE,
    num_prompt_tokens BIGINT,
    prediction VARCHAR,
    reference VARCHAR,
    score DOUBLE,
    cluster VARCHAR,
    margin DOUBLE,
    prompt_end VARCHAR,
    nll DOUBLE,
    nll_beyond DOUBLE,
    no_context DOUBLE,
    local_context DOUBLE
);

CREATE TABLE store.token_nll (
    cell VARCHAR NOT NULL,
    position_bin BIGINT NOT NULL,
    nll DOUBLE NOT NULL
);

CREATE TABLE store.long_perplexity (
    study VARCHAR NOT NULL,
    base_model VARCHAR NOT NULL,
    method VARCHAR NOT NULL,
    frozen BOOLEAN NOT NULL,
    seed BIGINT NOT NULL,
    task VARCHAR NOT NULL,
    profile VARCHAR,
    eval_length BIGINT NOT NULL,
    value DOUBLE,
    ci_low DOUBLE,
    ci_high DOUBLE,
    num_key_tokens BIGINT NOT NULL,
    evaluator_tokens BIGINT NOT NULL,
    short_tokens BIGINT NOT NULL
);

CREATE TABLE store.loss (
    checkpoint VARCHAR NOT NULL,
    step BIGINT NOT NULL,
    tokens BIGINT,
    loss DOUBLE,
    learning_rate DOUBLE,
    tokens_per_second DOUBLE,
    mfu DOUBLE,
    grad_norm DOUBLE,
    peak_memory_bytes BIGINT
);

CREATE TABLE store.artifact (
    artifact VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    folder VARCHAR NOT NULL,
    intact BOOLEAN NOT NULL,
    damage VARCHAR,
    num_files BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    seconds DOUBLE NOT NULL,
    started_at TIMESTAMP NOT NULL,
    created_at TIMESTAMP NOT NULL,
    environment VARCHAR NOT NULL,
    spec VARCHAR NOT NULL,
    result VARCHAR NOT NULL,
    execution VARCHAR NOT NULL,
    plugins VARCHAR NOT NULL DEFAULT '{}'
);
COMMENT ON TABLE store.artifact IS 'Artifacts with a readable record.';

CREATE TABLE store.edge (
    child VARCHAR NOT NULL,
    parent VARCHAR NOT NULL,
    role VARCHAR NOT NULL
);
COMMENT ON TABLE store.edge IS
    'Pairs of an artifact (child) and an artifact that it was made from (parent).';

CREATE TABLE store.environment (
    environment VARCHAR NOT NULL,
    git_commit VARCHAR,
    git_dirty BOOLEAN,
    host VARCHAR,
    platform VARCHAR,
    python VARCHAR,
    cpu VARCHAR,
    cpu_count BIGINT,
    instructions VARCHAR,
    accelerators VARCHAR,
    libraries VARCHAR,
    switches VARCHAR
);
COMMENT ON TABLE store.environment IS 'Distinct environments in which artifacts were made.';

CREATE TABLE store.verification (
    cell VARCHAR NOT NULL,
    verified_at TIMESTAMP NOT NULL,
    committed_at TIMESTAMP NOT NULL,
    environment VARCHAR,
    same_environment BOOLEAN NOT NULL,
    tolerance DOUBLE NOT NULL,
    metric VARCHAR,
    committed DOUBLE,
    again DOUBLE,
    num_samples BIGINT NOT NULL,
    num_same_samples BIGINT NOT NULL,
    largest_sample_difference DOUBLE,
    largest_nll_difference DOUBLE,
    identical BOOLEAN NOT NULL,
    agrees BOOLEAN NOT NULL,
    error VARCHAR
);
COMMENT ON TABLE store.verification IS
    'Comparisons of recomputed cells with stored results, one row per comparison and metric; one row with an error if recomputing failed.';
