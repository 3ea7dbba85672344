-- Means with intervals that cover other seeds and prompts; catalog/comparisons/seeds.py fills the
-- table.

CREATE TABLE compared.mean_over_seeds (
    study VARCHAR NOT NULL,
    base_model VARCHAR NOT NULL,
    method VARCHAR NOT NULL,
    frozen BOOLEAN NOT NULL,
    benchmark VARCHAR NOT NULL,
    task VARCHAR NOT NULL,
    eval_length BIGINT NOT NULL,
    value DOUBLE NOT NULL,
    ci_low DOUBLE,
    ci_high DOUBLE,
    num_seeds BIGINT NOT NULL,
    seed_sd DOUBLE,
    document_sd DOUBLE NOT NULL,
    num_documents BIGINT NOT NULL,
    metric VARCHAR,
    unit VARCHAR,
    higher_is_better BOOLEAN NOT NULL,
    profile VARCHAR
);
COMMENT ON TABLE compared.mean_over_seeds IS 'Means with an interval for other seeds and prompts.';

CREATE VIEW mean_over_seeds AS FROM compared.mean_over_seeds ORDER BY rowid;

COMMENT ON VIEW mean_over_seeds IS
    'Mean of each task at each length with an interval for other seeds and other prompts, if all seeds are done. The range of the seeds that ran is in score_by_length.';
