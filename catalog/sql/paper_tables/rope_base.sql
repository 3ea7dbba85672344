-- Written by `python -m tests.support.catalogs.paper_tables`, from catalog/reference.

CREATE SCHEMA rope_base;

CREATE VIEW rope_base.table_4 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    train_length,
    source,
    any_value(value) FILTER (paper_benchmark = 'Long-eval' AND eval_length = 15360) AS long_eval_15k,
    any_value(value) FILTER (paper_benchmark = 'Long-eval' AND eval_length = 30720) AS long_eval_30k,
    any_value(value) FILTER (paper_benchmark = 'violations of the bound' AND eval_length = 15360) AS violations_15k,
    any_value(value) FILTER (paper_benchmark = 'violations of the bound' AND eval_length = 30720) AS violations_30k,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'rope_base' AND place = 'Table 4'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW rope_base.table_4 IS
    'Table 4. Long-eval with and without violations of the bound. Lengths: 15k and 30k for both.';
COMMENT ON COLUMN rope_base.table_4.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN rope_base.table_4.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN rope_base.table_4.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN rope_base.table_4.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN rope_base.table_4.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN rope_base.table_4.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN rope_base.table_4.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN rope_base.table_4.long_eval_15k IS 'Long-eval at 15,360 tokens; 0 to 1.';
COMMENT ON COLUMN rope_base.table_4.long_eval_30k IS 'Long-eval at 30,720 tokens; 0 to 1.';
COMMENT ON COLUMN rope_base.table_4.violations_15k IS 'Violations of the bound at 15,360 tokens; a count.';
COMMENT ON COLUMN rope_base.table_4.violations_30k IS 'Violations of the bound at 30,720 tokens; a count.';
COMMENT ON COLUMN rope_base.table_4.lengths IS 'Lengths that the row stands on.';

CREATE VIEW rope_base.table_1 AS
SELECT
    paper_method,
    any_value(value) FILTER (setting = 'rope_base') AS rope_base,
    any_value(value) FILTER (setting = 'context_length') AS context_length
FROM papers.hyperparameter
WHERE paper = 'rope_base' AND place = 'Table 1'
GROUP BY ALL
ORDER BY min(id);

COMMENT ON VIEW rope_base.table_1 IS
    'Table 1. Base and context of published models. Lengths: none.';
COMMENT ON COLUMN rope_base.table_1.paper_method IS 'Model as the paper names it.';
COMMENT ON COLUMN rope_base.table_1.rope_base IS 'Rope base, as printed.';
COMMENT ON COLUMN rope_base.table_1.context_length IS 'Context length, as printed; tokens.';

CREATE VIEW rope_base.table_2 AS
SELECT
    eval_length,
    any_value(value) FILTER (setting = 'rope_base_lower_bound') AS lower_bound
FROM papers.hyperparameter
WHERE paper = 'rope_base' AND place = 'Table 2'
GROUP BY ALL
ORDER BY min(id);

COMMENT ON VIEW rope_base.table_2 IS
    'Table 2. Lower bound of the base. Lengths: 1k to 1M.';
COMMENT ON COLUMN rope_base.table_2.eval_length IS 'Context in tokens.';
COMMENT ON COLUMN rope_base.table_2.lower_bound IS 'Rope base lower bound, as printed.';

CREATE VIEW rope_base.table_5 AS
SELECT
    paper_method,
    any_value(value) FILTER (setting = 'train_length') AS train_length,
    any_value(value) FILTER (setting = 'train_tokens') AS train_tokens,
    any_value(value) FILTER (setting = 'batch_size') AS batch_size,
    any_value(value) FILTER (setting = 'learning_rate') AS learning_rate,
    any_value(text) FILTER (setting = 'lr_decay') AS lr_decay,
    any_value(value) FILTER (setting = 'weight_decay') AS weight_decay
FROM papers.hyperparameter
WHERE paper = 'rope_base' AND place = 'Table 5'
GROUP BY ALL
ORDER BY min(id);

COMMENT ON VIEW rope_base.table_5 IS
    'Table 5. Settings of training. Lengths: the length trained at.';
COMMENT ON COLUMN rope_base.table_5.paper_method IS 'Model as the paper names it.';
COMMENT ON COLUMN rope_base.table_5.train_length IS 'Train length, as printed; tokens.';
COMMENT ON COLUMN rope_base.table_5.train_tokens IS 'Train tokens, as printed; tokens.';
COMMENT ON COLUMN rope_base.table_5.batch_size IS 'Batch size, as printed; sequences.';
COMMENT ON COLUMN rope_base.table_5.learning_rate IS 'Learning rate, as printed.';
COMMENT ON COLUMN rope_base.table_5.lr_decay IS 'Lr decay, as printed.';
COMMENT ON COLUMN rope_base.table_5.weight_decay IS 'Weight decay, as printed.';
