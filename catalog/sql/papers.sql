-- The papers' printed figures (catalog/reference/*.csv): facts of the literature, the same in every
-- catalog. They have a schema of their own, so that the digest of what studies computed leaves them
-- out.

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
COMMENT ON TABLE papers.score IS 'Figures that the papers print, one row each.';

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
COMMENT ON TABLE papers.hyperparameter IS 'Settings that the papers name, one row each.';

CREATE TABLE papers.erratum (
    id VARCHAR NOT NULL,
    paper VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    place VARCHAR NOT NULL,
    says VARCHAR NOT NULL,
    against VARCHAR NOT NULL,
    taken VARCHAR NOT NULL
);
COMMENT ON TABLE papers.erratum IS 'Where the papers contradict themselves or each other.';

CREATE VIEW paper_scores AS FROM papers.score ORDER BY rowid;

COMMENT ON VIEW paper_scores IS
    'Every figure of the papers'' tables, as printed, with the names that join with scores.';
COMMENT ON COLUMN paper_scores.id IS 'Id of the row: paper, table and number.';
COMMENT ON COLUMN paper_scores.paper IS
    'lceg (arXiv:2409.12181), yarn (2309.00071), harpe (2412.07171) or rope_base (2405.14591).';
COMMENT ON COLUMN paper_scores.place IS 'Table that prints it.';
COMMENT ON COLUMN paper_scores.paper_model IS 'Base model in the paper''s words; NULL if none.';
COMMENT ON COLUMN paper_scores.base_model IS
    'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN paper_scores.paper_method IS
    'Method or model as the paper names it; base model where there is no method.';
COMMENT ON COLUMN paper_scores.method IS
    'Label in the shipped study of that table; NULL for weights that others trained.';
COMMENT ON COLUMN paper_scores.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN paper_scores.exact_attention IS
    'Whether every token can attend to every earlier one; NULL where the paper does not say.';
COMMENT ON COLUMN paper_scores.train_length IS
    'Tokens of the rows that the weights were last trained on; NULL if not printed.';
COMMENT ON COLUMN paper_scores.target_context IS
    'Context the method extends to, in tokens; NULL if it has none, or as far as it is asked.';
COMMENT ON COLUMN paper_scores.train_steps IS 'Optimiser steps; NULL if not printed.';
COMMENT ON COLUMN paper_scores.scale IS 'Scale of the method; NULL if not printed.';
COMMENT ON COLUMN paper_scores.paper_benchmark IS
    'Benchmark, data set or task, near the paper''s name for it.';
COMMENT ON COLUMN paper_scores.benchmark IS
    'Registered name of the benchmark; NULL where none here measures it.';
COMMENT ON COLUMN paper_scores.profile IS
    'Profile of the benchmark that follows the paper; NULL without a benchmark.';
COMMENT ON COLUMN paper_scores.metric IS
    'Metric of the benchmark that is the paper''s; NULL for the default one.';
COMMENT ON COLUMN paper_scores.task IS 'Task of the benchmark, or average; NULL if not printed.';
COMMENT ON COLUMN paper_scores.eval_length IS
    'Evaluated context in tokens; NULL for a mean over lengths, or if not printed.';
COMMENT ON COLUMN paper_scores.mean_tasks IS
    'Tasks that a printed average is taken over, separated by spaces; NULL if of one.';
COMMENT ON COLUMN paper_scores.mean_lengths IS
    'Lengths that a printed average is taken over, separated by spaces; NULL if of one.';
COMMENT ON COLUMN paper_scores.parts_in IS
    'Table of the same paper that prints the parts of the average; NULL if none does.';
COMMENT ON COLUMN paper_scores.printed IS 'The figure as printed: -, NaN and >10^1 too.';
COMMENT ON COLUMN paper_scores.value IS
    'The figure in the unit it is printed in; NULL where it is none.';
COMMENT ON COLUMN paper_scores.unit IS
    'perplexity, percent, fraction, tokens, count or gpu_hours.';
COMMENT ON COLUMN paper_scores.errata IS
    'Ids in paper_errata, separated by spaces; NULL if nothing is known.';
COMMENT ON COLUMN paper_scores.note IS 'What the other columns cannot say.';

CREATE VIEW paper_hyperparameters AS FROM papers.hyperparameter ORDER BY rowid;

COMMENT ON VIEW paper_hyperparameters IS 'Every setting that the papers name, one row each.';
COMMENT ON COLUMN paper_hyperparameters.id IS 'Id of the row: paper and number.';
COMMENT ON COLUMN paper_hyperparameters.paper IS 'Paper, as in paper_scores.';
COMMENT ON COLUMN paper_hyperparameters.place IS 'Table or section that names it.';
COMMENT ON COLUMN paper_hyperparameters.paper_method IS
    'Method or model as the paper names it; all for the whole study.';
COMMENT ON COLUMN paper_hyperparameters.method IS
    'Label, as in paper_scores; NULL where it is for several, or for a model.';
COMMENT ON COLUMN paper_hyperparameters.setting IS 'What is set.';
COMMENT ON COLUMN paper_hyperparameters.eval_length IS
    'Context in tokens that it is for; NULL if for all.';
COMMENT ON COLUMN paper_hyperparameters.scale IS
    'Scale at which Table 9 of LCEG measures a perplexity; NULL elsewhere.';
COMMENT ON COLUMN paper_hyperparameters.value IS 'The setting as a number; NULL if it is none.';
COMMENT ON COLUMN paper_hyperparameters.text IS 'The setting as text.';
COMMENT ON COLUMN paper_hyperparameters.unit IS 'Unit of the value; NULL if it has none.';
COMMENT ON COLUMN paper_hyperparameters.errata IS 'Ids in paper_errata, separated by spaces.';
COMMENT ON COLUMN paper_hyperparameters.note IS 'What the other columns cannot say.';

CREATE VIEW paper_errata AS FROM papers.erratum ORDER BY rowid;

COMMENT ON VIEW paper_errata IS
    'Where the papers contradict themselves or each other, and which figure is taken here.';
COMMENT ON COLUMN paper_errata.id IS 'Id, which paper_scores and paper_hyperparameters name.';
COMMENT ON COLUMN paper_errata.paper IS 'Paper, as in paper_scores; several separated by spaces.';
COMMENT ON COLUMN paper_errata.kind IS
    'figure (contradicted), doubt (suspicious, not provable), prose (against its tables) or between (papers).';
COMMENT ON COLUMN paper_errata.place IS 'Where it stands.';
COMMENT ON COLUMN paper_errata.says IS 'What is printed there.';
COMMENT ON COLUMN paper_errata.against IS 'What contradicts it.';
COMMENT ON COLUMN paper_errata.taken IS 'How the figures here are taken.';
