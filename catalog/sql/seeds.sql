-- Means for seeds and prompts that were not run; filled by catalog/comparisons/seeds.py.

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
COMMENT ON TABLE compared.mean_over_seeds IS 'Means with an interval over seeds and prompts.';

CREATE VIEW mean_over_seeds AS FROM compared.mean_over_seeds ORDER BY rowid;

COMMENT ON VIEW mean_over_seeds IS
    'Each task at each length with its interval for other seeds and other prompts, where all seeds are done; score_by_length has the range of the seeds that ran.';
COMMENT ON COLUMN mean_over_seeds.study IS 'Name of the study.';
COMMENT ON COLUMN mean_over_seeds.base_model IS 'Registered name of the base model.';
COMMENT ON COLUMN mean_over_seeds.method IS 'Label of the method.';
COMMENT ON COLUMN mean_over_seeds.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN mean_over_seeds.benchmark IS 'Registered name of the benchmark.';
COMMENT ON COLUMN mean_over_seeds.task IS 'Task of the benchmark.';
COMMENT ON COLUMN mean_over_seeds.eval_length IS 'Evaluated context in tokens.';
COMMENT ON COLUMN mean_over_seeds.value IS 'Mean over all planned seeds, as in score_by_length.';
COMMENT ON COLUMN mean_over_seeds.ci_low IS 'Lower bound of its 95 % interval for other seeds and prompts; NULL with one seed, and not kept within the unit.';
COMMENT ON COLUMN mean_over_seeds.ci_high IS 'Upper bound of it.';
COMMENT ON COLUMN mean_over_seeds.num_seeds IS 'Seeds, all of them done.';
COMMENT ON COLUMN mean_over_seeds.seed_sd IS 'Standard deviation of what a seed adds, estimated; NULL with one seed.';
COMMENT ON COLUMN mean_over_seeds.document_sd IS 'Standard deviation of what a document (or a prompt by itself) adds, estimated.';
COMMENT ON COLUMN mean_over_seeds.num_documents IS 'Documents, or prompts by themselves, of one seed.';
COMMENT ON COLUMN mean_over_seeds.metric IS 'Default metric of the task.';
COMMENT ON COLUMN mean_over_seeds.unit IS 'Unit of the value.';
COMMENT ON COLUMN mean_over_seeds.higher_is_better IS 'Which direction is better.';
COMMENT ON COLUMN mean_over_seeds.profile IS 'Profile of the benchmark.';
