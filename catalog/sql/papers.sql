-- Figures printed in the papers, from catalog/reference/*.csv; the same in every catalog. They have
-- their own schema, because schema `store` contains only what the studies computed.

CREATE SCHEMA papers;

CREATE TABLE papers.score (
    id VARCHAR NOT NULL,
    paper VARCHAR NOT NULL,
    place VARCHAR NOT NULL,
    paper_model VARCHAR,
    base_model VARCHAR,
    paper_method VARCHAR NOT NULL,
    method VARCHAR,
    frozen BOOLEAN,
    exact_attention BOOLEAN,
    train_length BIGINT,
    target_context BIGINT,
    train_steps BIGINT,
    scale DOUBLE,
    paper_benchmark VARCHAR NOT NULL,
    benchmark VARCHAR,
    profile VARCHAR,
    metric VARCHAR,
    task VARCHAR,
    eval_length BIGINT,
    mean_tasks VARCHAR,
    mean_lengths VARCHAR,
    parts_in VARCHAR,
    printed VARCHAR NOT NULL,
    value DOUBLE,
    unit VARCHAR NOT NULL,
    errata VARCHAR,
    note VARCHAR
);

CREATE TABLE papers.hyperparameter (
    id VARCHAR NOT NULL,
    paper VARCHAR NOT NULL,
    place VARCHAR NOT NULL,
    paper_method VARCHAR,
    method VARCHAR,
    setting VARCHAR NOT NULL,
    eval_length BIGINT,
    scale DOUBLE,
    value DOUBLE,
    text VARCHAR,
    unit VARCHAR,
    errata VARCHAR,
    note VARCHAR
);

CREATE TABLE papers.erratum (
    id VARCHAR NOT NULL,
    paper VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    place VARCHAR NOT NULL,
    says VARCHAR NOT NULL,
    against VARCHAR NOT NULL,
    taken VARCHAR NOT NULL
);

CREATE VIEW paper_scores AS FROM papers.score ORDER BY rowid;

COMMENT ON VIEW paper_scores IS
    'Figures in the papers'' tables as printed, one row each, with the names that join with scores.';

CREATE VIEW paper_hyperparameters AS FROM papers.hyperparameter ORDER BY rowid;

COMMENT ON VIEW paper_hyperparameters IS 'Settings that the papers state, one row each.';

CREATE VIEW paper_errata AS FROM papers.erratum ORDER BY rowid;

COMMENT ON VIEW paper_errata IS
    'Places where the papers contradict themselves or each other, and which figure is used here.';
