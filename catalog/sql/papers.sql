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
COMMENT ON TABLE papers.score IS 'Figures in the papers'' tables, one row each.';

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
COMMENT ON TABLE papers.hyperparameter IS 'Settings that the papers state, one row each.';

CREATE TABLE papers.erratum (
    id VARCHAR NOT NULL,
    paper VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    place VARCHAR NOT NULL,
    says VARCHAR NOT NULL,
    against VARCHAR NOT NULL,
    taken VARCHAR NOT NULL
);
COMMENT ON TABLE papers.erratum IS 'Places where the papers contradict themselves or each other.';

CREATE VIEW paper_scores AS FROM papers.score ORDER BY rowid;

COMMENT ON VIEW paper_scores IS
    'Figures in the papers'' tables as printed, one row each, with the names that join with scores.';
COMMENT ON COLUMN paper_scores.id IS 'Id of the printed figure: paper, table and number.';
COMMENT ON COLUMN paper_scores.place IS 'Table that prints the figure.';
COMMENT ON COLUMN paper_scores.paper_model IS
    'Name of the base model in the paper; NULL if the figure concerns none.';
COMMENT ON COLUMN paper_scores.base_model IS
    'Registered name of the base model; NULL if it is not registered.';
COMMENT ON COLUMN paper_scores.paper_method IS
    'Name of the method in the paper, or of the model if the table compares models.';
COMMENT ON COLUMN paper_scores.method IS
    'Label of the method in the shipped study that repeats the table; NULL for weights that others trained.';
COMMENT ON COLUMN paper_scores.frozen IS
    'True if the method is applied without fine-tuning, false if the model was fine-tuned with it; NULL for a row about no method or model, such as average lengths.';
COMMENT ON COLUMN paper_scores.exact_attention IS
    'True if every token attends to all earlier tokens; NULL if the paper does not say.';
COMMENT ON COLUMN paper_scores.train_length IS
    'Sequence length, in tokens, with which the weights were last trained; NULL if not printed.';
COMMENT ON COLUMN paper_scores.target_context IS
    'Context length in tokens to which the method extends the model; NULL if it has none or extends to any requested length.';
COMMENT ON COLUMN paper_scores.train_steps IS 'Number of optimiser steps; NULL if not printed.';
COMMENT ON COLUMN paper_scores.scale IS 'Scale factor of the method; NULL if not printed.';
COMMENT ON COLUMN paper_scores.paper_benchmark IS
    'Benchmark, data set or quantity, named as in the paper.';
COMMENT ON COLUMN paper_scores.benchmark IS
    'Registered name of the benchmark; NULL if none here measures the same quantity.';
COMMENT ON COLUMN paper_scores.profile IS
    'Profile of the benchmark that follows the paper; NULL without a benchmark.';
COMMENT ON COLUMN paper_scores.metric IS
    'Metric of the benchmark that matches the paper''s; NULL for the default metric.';
COMMENT ON COLUMN paper_scores.task IS
    'Name of the task within the benchmark, or average; NULL if not printed.';
COMMENT ON COLUMN paper_scores.eval_length IS
    'Context length of the evaluation in tokens; NULL for a mean over lengths, or if not printed.';
COMMENT ON COLUMN paper_scores.mean_tasks IS
    'Tasks behind a printed average, separated by spaces; NULL for a single task.';
COMMENT ON COLUMN paper_scores.mean_lengths IS
    'Context lengths in tokens behind a printed average, separated by spaces; NULL for a single length.';
COMMENT ON COLUMN paper_scores.parts_in IS
    'Table of the same paper that prints the values behind the average; NULL if none does.';
COMMENT ON COLUMN paper_scores.printed IS 'Figure as printed, including -, NaN and >10^1.';
COMMENT ON COLUMN paper_scores.value IS
    'Figure as a number in the printed unit; NULL if it is not a number.';
COMMENT ON COLUMN paper_scores.unit IS
    'Printed unit: perplexity, percent, fraction, tokens, count or gpu_hours.';
COMMENT ON COLUMN paper_scores.errata IS
    'Ids in paper_errata that concern the figure, separated by spaces; NULL if none.';
COMMENT ON COLUMN paper_scores.note IS
    'Remark on what the other columns cannot express; NULL if none.';

CREATE VIEW paper_hyperparameters AS FROM papers.hyperparameter ORDER BY rowid;

COMMENT ON VIEW paper_hyperparameters IS 'Settings that the papers state, one row each.';
COMMENT ON COLUMN paper_hyperparameters.id IS 'Id of the setting: paper and number.';
COMMENT ON COLUMN paper_hyperparameters.place IS 'Table or section that states the setting.';
COMMENT ON COLUMN paper_hyperparameters.paper_method IS
    'Name of the method or model in the paper; all for the whole study.';
COMMENT ON COLUMN paper_hyperparameters.method IS
    'Label of the method in the shipped study, as in paper_scores; NULL for several methods or a model.';
COMMENT ON COLUMN paper_hyperparameters.setting IS 'Name of the setting.';
COMMENT ON COLUMN paper_hyperparameters.eval_length IS
    'Context length in tokens to which the setting applies; NULL if it applies to all.';
COMMENT ON COLUMN paper_hyperparameters.scale IS
    'Scale factor at which LCEG''s Table 9 reports a perplexity; NULL elsewhere.';
COMMENT ON COLUMN paper_hyperparameters.value IS 'Setting as a number; NULL if it is not a number.';
COMMENT ON COLUMN paper_hyperparameters.text IS 'Setting as text.';
COMMENT ON COLUMN paper_hyperparameters.unit IS 'Unit of the value; NULL if it has none.';
COMMENT ON COLUMN paper_hyperparameters.errata IS
    'Ids in paper_errata that concern the setting, separated by spaces; NULL if none.';
COMMENT ON COLUMN paper_hyperparameters.note IS
    'Remark on what the other columns cannot express; NULL if none.';

CREATE VIEW paper_errata AS FROM papers.erratum ORDER BY rowid;

COMMENT ON VIEW paper_errata IS
    'Places where the papers contradict themselves or each other, and which figure is used here.';
COMMENT ON COLUMN paper_errata.id IS
    'Id of the erratum; the columns errata of paper_scores and paper_hyperparameters refer to it.';
COMMENT ON COLUMN paper_errata.paper IS
    'Paper as in paper_scores; several are separated by spaces.';
COMMENT ON COLUMN paper_errata.kind IS
    'Kind of erratum: figure (a contradicted figure), doubt (suspicious but not provable), prose (text that contradicts its tables) or between (papers that contradict each other).';
COMMENT ON COLUMN paper_errata.place IS 'Place of the contradicted statement in the paper.';
COMMENT ON COLUMN paper_errata.says IS 'Contradicted statement as printed.';
COMMENT ON COLUMN paper_errata.against IS 'Evidence that contradicts the statement.';
COMMENT ON COLUMN paper_errata.taken IS 'How this project uses the figures.';
