-- Written by `python -m tests.support.catalogs.paper_tables`, from catalog/reference.

CREATE SCHEMA yarn;

CREATE VIEW yarn.table_1 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    train_length,
    source,
    any_value(value) FILTER (eval_length = 8192) AS at_8k,
    any_value(value) FILTER (eval_length = 16384) AS at_16k,
    any_value(value) FILTER (eval_length = 32768) AS at_32k,
    any_value(value) FILTER (eval_length = 65536) AS at_64k,
    any_value(value) FILTER (eval_length = 131072) AS at_128k,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'yarn' AND place = 'Table 1'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW yarn.table_1 IS
    'Table 1. Perplexity of the released models. Lengths: 8k to 128k for every method.';
COMMENT ON COLUMN yarn.table_1.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN yarn.table_1.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN yarn.table_1.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN yarn.table_1.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN yarn.table_1.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN yarn.table_1.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN yarn.table_1.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN yarn.table_1.at_8k IS 'Proof-pile at 8,192 tokens; perplexity.';
COMMENT ON COLUMN yarn.table_1.at_16k IS 'Proof-pile at 16,384 tokens; perplexity.';
COMMENT ON COLUMN yarn.table_1.at_32k IS 'Proof-pile at 32,768 tokens; perplexity.';
COMMENT ON COLUMN yarn.table_1.at_64k IS 'Proof-pile at 65,536 tokens; perplexity.';
COMMENT ON COLUMN yarn.table_1.at_128k IS 'Proof-pile at 131,072 tokens; perplexity.';
COMMENT ON COLUMN yarn.table_1.lengths IS 'Lengths that the row stands on.';

CREATE VIEW yarn.table_2 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    train_length,
    source,
    any_value(value) FILTER (task = 'arc_challenge') AS arc_challenge,
    any_value(value) FILTER (task = 'hellaswag') AS hellaswag,
    any_value(value) FILTER (task = 'mmlu') AS mmlu,
    any_value(value) FILTER (task = 'truthfulqa_mc2') AS truthfulqa_mc2,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'yarn' AND place = 'Table 2'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW yarn.table_2 IS
    'Table 2. Short-context tasks of LLaMA-7B. Lengths: 2k for every method.';
COMMENT ON COLUMN yarn.table_2.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN yarn.table_2.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN yarn.table_2.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN yarn.table_2.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN yarn.table_2.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN yarn.table_2.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN yarn.table_2.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN yarn.table_2.arc_challenge IS 'Arc_challenge; percent.';
COMMENT ON COLUMN yarn.table_2.hellaswag IS 'Hellaswag; percent.';
COMMENT ON COLUMN yarn.table_2.mmlu IS 'Mmlu; percent.';
COMMENT ON COLUMN yarn.table_2.truthfulqa_mc2 IS 'Truthfulqa_mc2; percent.';
COMMENT ON COLUMN yarn.table_2.lengths IS 'Lengths that the row stands on.';

CREATE VIEW yarn.table_3 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    train_length,
    source,
    any_value(value) FILTER (task = 'arc_challenge') AS arc_challenge,
    any_value(value) FILTER (task = 'hellaswag') AS hellaswag,
    any_value(value) FILTER (task = 'mmlu') AS mmlu,
    any_value(value) FILTER (task = 'truthfulqa_mc2') AS truthfulqa_mc2,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'yarn' AND place = 'Table 3'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW yarn.table_3 IS
    'Table 3. Short-context tasks of Llama 2. Lengths: 4k for every method.';
COMMENT ON COLUMN yarn.table_3.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN yarn.table_3.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN yarn.table_3.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN yarn.table_3.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN yarn.table_3.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN yarn.table_3.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN yarn.table_3.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN yarn.table_3.arc_challenge IS 'Arc_challenge; percent.';
COMMENT ON COLUMN yarn.table_3.hellaswag IS 'Hellaswag; percent.';
COMMENT ON COLUMN yarn.table_3.mmlu IS 'Mmlu; percent.';
COMMENT ON COLUMN yarn.table_3.truthfulqa_mc2 IS 'Truthfulqa_mc2; percent.';
COMMENT ON COLUMN yarn.table_3.lengths IS 'Lengths that the row stands on.';

CREATE VIEW yarn.table_4 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    train_length,
    source,
    any_value(value) FILTER (paper_benchmark = 'GPU-hours') AS gpu_hours,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'yarn' AND place = 'Table 4'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW yarn.table_4 IS
    'Table 4. GPU-hours of training. Lengths: the context reached.';
COMMENT ON COLUMN yarn.table_4.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN yarn.table_4.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN yarn.table_4.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN yarn.table_4.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN yarn.table_4.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN yarn.table_4.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN yarn.table_4.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN yarn.table_4.gpu_hours IS 'GPU-hours; hours of a GPU.';
COMMENT ON COLUMN yarn.table_4.lengths IS 'Lengths that the row stands on.';

CREATE VIEW yarn.table_5 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    train_length,
    source,
    any_value(value) FILTER (eval_length = 2048) AS at_2k,
    any_value(value) FILTER (eval_length = 4096) AS at_4k,
    any_value(value) FILTER (eval_length = 8192) AS at_8k,
    any_value(value) FILTER (eval_length = 16384) AS at_16k,
    any_value(value) FILTER (eval_length = 32768) AS at_32k,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'yarn' AND place = 'Table 5'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW yarn.table_5 IS
    'Table 5. Perplexity of the ablation. Lengths: 2k to 32k for every method.';
COMMENT ON COLUMN yarn.table_5.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN yarn.table_5.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN yarn.table_5.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN yarn.table_5.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN yarn.table_5.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN yarn.table_5.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN yarn.table_5.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN yarn.table_5.at_2k IS 'Proof-pile at 2,048 tokens; perplexity.';
COMMENT ON COLUMN yarn.table_5.at_4k IS 'Proof-pile at 4,096 tokens; perplexity.';
COMMENT ON COLUMN yarn.table_5.at_8k IS 'Proof-pile at 8,192 tokens; perplexity.';
COMMENT ON COLUMN yarn.table_5.at_16k IS 'Proof-pile at 16,384 tokens; perplexity.';
COMMENT ON COLUMN yarn.table_5.at_32k IS 'Proof-pile at 32,768 tokens; perplexity.';
COMMENT ON COLUMN yarn.table_5.lengths IS 'Lengths that the row stands on.';

CREATE VIEW yarn.table_6 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    train_length,
    source,
    any_value(value) FILTER (eval_length = 2048) AS at_2k,
    any_value(value) FILTER (eval_length = 4096) AS at_4k,
    any_value(value) FILTER (eval_length = 6144) AS at_6k,
    any_value(value) FILTER (eval_length = 8192) AS at_8k,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'yarn' AND place = 'Table 6'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW yarn.table_6 IS
    'Table 6. Perplexity extended to 8k. Lengths: 2k to 8k for every method.';
COMMENT ON COLUMN yarn.table_6.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN yarn.table_6.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN yarn.table_6.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN yarn.table_6.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN yarn.table_6.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN yarn.table_6.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN yarn.table_6.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN yarn.table_6.at_2k IS 'Proof-pile at 2,048 tokens; perplexity.';
COMMENT ON COLUMN yarn.table_6.at_4k IS 'Proof-pile at 4,096 tokens; perplexity.';
COMMENT ON COLUMN yarn.table_6.at_6k IS 'Proof-pile at 6,144 tokens; perplexity.';
COMMENT ON COLUMN yarn.table_6.at_8k IS 'Proof-pile at 8,192 tokens; perplexity.';
COMMENT ON COLUMN yarn.table_6.lengths IS 'Lengths that the row stands on.';

CREATE VIEW yarn.table_7 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    train_length,
    source,
    any_value(value) FILTER (eval_length = 8192) AS at_8k,
    any_value(value) FILTER (eval_length = 32768) AS at_32k,
    any_value(value) FILTER (eval_length = 65536) AS at_64k,
    any_value(value) FILTER (eval_length = 98304) AS at_96k,
    any_value(value) FILTER (eval_length = 131072) AS at_128k,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'yarn' AND place = 'Table 7'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW yarn.table_7 IS
    'Table 7. Perplexity beside other models. Lengths: 8k to 128k for every method.';
COMMENT ON COLUMN yarn.table_7.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN yarn.table_7.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN yarn.table_7.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN yarn.table_7.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN yarn.table_7.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN yarn.table_7.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN yarn.table_7.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN yarn.table_7.at_8k IS 'Proof-pile at 8,192 tokens; perplexity.';
COMMENT ON COLUMN yarn.table_7.at_32k IS 'Proof-pile at 32,768 tokens; perplexity.';
COMMENT ON COLUMN yarn.table_7.at_64k IS 'Proof-pile at 65,536 tokens; perplexity.';
COMMENT ON COLUMN yarn.table_7.at_96k IS 'Proof-pile at 98,304 tokens; perplexity.';
COMMENT ON COLUMN yarn.table_7.at_128k IS 'Proof-pile at 131,072 tokens; perplexity.';
COMMENT ON COLUMN yarn.table_7.lengths IS 'Lengths that the row stands on.';

CREATE VIEW yarn.table_8 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    train_length,
    source,
    any_value(value) FILTER (task = 'govreport') AS govreport,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'yarn' AND place = 'Table 8'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW yarn.table_8 IS
    'Table 8. Perplexity of GovReport. Lengths: 32k for every method.';
COMMENT ON COLUMN yarn.table_8.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN yarn.table_8.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN yarn.table_8.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN yarn.table_8.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN yarn.table_8.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN yarn.table_8.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN yarn.table_8.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN yarn.table_8.govreport IS 'Govreport; perplexity.';
COMMENT ON COLUMN yarn.table_8.lengths IS 'Lengths that the row stands on.';

CREATE VIEW yarn.table_9 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    train_length,
    source,
    any_value(value) FILTER (paper_benchmark = 'Passkey' AND unit = 'tokens') AS passkey_tokens,
    any_value(value) FILTER (paper_benchmark = 'Passkey' AND unit = 'percent') AS passkey_percent,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'yarn' AND place = 'Table 9'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW yarn.table_9 IS
    'Table 9. Passkey. Lengths: every 8k up to each model''s own end: 32k, 64k, 112k or 128k.';
COMMENT ON COLUMN yarn.table_9.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN yarn.table_9.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN yarn.table_9.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN yarn.table_9.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN yarn.table_9.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN yarn.table_9.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN yarn.table_9.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN yarn.table_9.passkey_tokens IS 'Passkey; tokens.';
COMMENT ON COLUMN yarn.table_9.passkey_percent IS 'Passkey; percent.';
COMMENT ON COLUMN yarn.table_9.lengths IS 'Lengths that the row stands on.';

CREATE VIEW yarn.table_10 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    train_length,
    source,
    any_value(value) FILTER (task = 'arc_challenge') AS arc_challenge,
    any_value(value) FILTER (task = 'hellaswag') AS hellaswag,
    any_value(value) FILTER (task = 'mmlu') AS mmlu,
    any_value(value) FILTER (task = 'truthfulqa_mc2') AS truthfulqa_mc2,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'yarn' AND place = 'Table 10'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW yarn.table_10 IS
    'Table 10. Short-context tasks beside other models. Lengths: 4k for every method.';
COMMENT ON COLUMN yarn.table_10.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN yarn.table_10.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN yarn.table_10.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN yarn.table_10.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN yarn.table_10.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN yarn.table_10.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN yarn.table_10.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN yarn.table_10.arc_challenge IS 'Arc_challenge; percent.';
COMMENT ON COLUMN yarn.table_10.hellaswag IS 'Hellaswag; percent.';
COMMENT ON COLUMN yarn.table_10.mmlu IS 'Mmlu; percent.';
COMMENT ON COLUMN yarn.table_10.truthfulqa_mc2 IS 'Truthfulqa_mc2; percent.';
COMMENT ON COLUMN yarn.table_10.lengths IS 'Lengths that the row stands on.';
