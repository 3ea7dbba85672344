-- Written by `python -m tests.support.catalogs.paper_tables`, from catalog/reference.

CREATE SCHEMA harpe;

CREATE VIEW harpe.table_1 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    train_length,
    source,
    any_value(value) FILTER (paper_benchmark = 'NIAH') AS niah,
    any_value(value) FILTER (paper_benchmark = 'Avg.') AS avg,
    MAP {
        'niah': any_value(lengths) FILTER (paper_benchmark = 'NIAH'),
        'avg': any_value(lengths) FILTER (paper_benchmark = 'Avg.')
    } AS lengths
FROM papers.beside
WHERE paper = 'harpe' AND place = 'Table 1'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW harpe.table_1 IS
    'Table 1. Two ways to split the tokens of three stages. Lengths: needles over 4k to 128k; short-context tasks at 4k.';
COMMENT ON COLUMN harpe.table_1.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN harpe.table_1.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN harpe.table_1.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN harpe.table_1.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN harpe.table_1.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN harpe.table_1.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN harpe.table_1.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN harpe.table_1.niah IS 'NIAH; percent.';
COMMENT ON COLUMN harpe.table_1.avg IS 'Avg.; percent.';
COMMENT ON COLUMN harpe.table_1.lengths IS 'Lengths that each column stands on, by its name.';

CREATE VIEW harpe.table_3 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    train_length,
    source,
    any_value(value) FILTER (task = 'proof_pile') AS proof_pile,
    any_value(value) FILTER (task = 'govreport') AS govreport,
    MAP {
        'proof_pile': any_value(lengths) FILTER (task = 'proof_pile'),
        'govreport': any_value(lengths) FILTER (task = 'govreport')
    } AS lengths
FROM papers.beside
WHERE paper = 'harpe' AND place = 'Table 3'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW harpe.table_3 IS
    'Table 3. Perplexity. Lengths: Proof-pile over every 2k up to 128k; GovReport at 32k.';
COMMENT ON COLUMN harpe.table_3.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN harpe.table_3.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN harpe.table_3.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN harpe.table_3.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN harpe.table_3.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN harpe.table_3.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN harpe.table_3.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN harpe.table_3.proof_pile IS 'Proof_pile; perplexity.';
COMMENT ON COLUMN harpe.table_3.govreport IS 'Govreport; perplexity.';
COMMENT ON COLUMN harpe.table_3.lengths IS 'Lengths that each column stands on, by its name.';

CREATE VIEW harpe.table_4 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    train_length,
    source,
    any_value(value) FILTER (eval_length = 4096) AS at_4k,
    any_value(value) FILTER (eval_length = 8192) AS at_8k,
    any_value(value) FILTER (eval_length = 16384) AS at_16k,
    any_value(value) FILTER (eval_length = 32768) AS at_32k,
    any_value(value) FILTER (eval_length = 65536) AS at_64k,
    any_value(value) FILTER (eval_length = 131072) AS at_128k,
    any_value(value) FILTER (eval_length IS NULL) AS average,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'harpe' AND place = 'Table 4'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW harpe.table_4 IS
    'Table 4. Needle tasks of RULER. Lengths: 4k to 128k for every method and their mean.';
COMMENT ON COLUMN harpe.table_4.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN harpe.table_4.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN harpe.table_4.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN harpe.table_4.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN harpe.table_4.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN harpe.table_4.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN harpe.table_4.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN harpe.table_4.at_4k IS 'NIAH at 4,096 tokens; percent.';
COMMENT ON COLUMN harpe.table_4.at_8k IS 'NIAH at 8,192 tokens; percent.';
COMMENT ON COLUMN harpe.table_4.at_16k IS 'NIAH at 16,384 tokens; percent.';
COMMENT ON COLUMN harpe.table_4.at_32k IS 'NIAH at 32,768 tokens; percent.';
COMMENT ON COLUMN harpe.table_4.at_64k IS 'NIAH at 65,536 tokens; percent.';
COMMENT ON COLUMN harpe.table_4.at_128k IS 'NIAH at 131,072 tokens; percent.';
COMMENT ON COLUMN harpe.table_4.average IS 'NIAH over all lengths; percent.';
COMMENT ON COLUMN harpe.table_4.lengths IS 'Lengths that the row stands on.';

CREATE VIEW harpe.table_5 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    train_length,
    source,
    any_value(value) FILTER (task = 'mmlu') AS mmlu,
    any_value(value) FILTER (task = 'hellaswag') AS hellaswag,
    any_value(value) FILTER (task = 'arc_challenge') AS arc_challenge,
    any_value(value) FILTER (task = 'piqa') AS piqa,
    any_value(value) FILTER (task = 'triviaqa') AS triviaqa,
    any_value(value) FILTER (task = 'average') AS average,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'harpe' AND place = 'Table 5'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW harpe.table_5 IS
    'Table 5. Short-context tasks. Lengths: 4k for every method.';
COMMENT ON COLUMN harpe.table_5.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN harpe.table_5.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN harpe.table_5.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN harpe.table_5.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN harpe.table_5.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN harpe.table_5.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN harpe.table_5.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN harpe.table_5.mmlu IS 'Mmlu; percent.';
COMMENT ON COLUMN harpe.table_5.hellaswag IS 'Hellaswag; percent.';
COMMENT ON COLUMN harpe.table_5.arc_challenge IS 'Arc_challenge; percent.';
COMMENT ON COLUMN harpe.table_5.piqa IS 'Piqa; percent.';
COMMENT ON COLUMN harpe.table_5.triviaqa IS 'Triviaqa; percent.';
COMMENT ON COLUMN harpe.table_5.average IS 'Average; percent.';
COMMENT ON COLUMN harpe.table_5.lengths IS 'Lengths that the row stands on.';

CREATE VIEW harpe.table_6 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    train_length,
    source,
    any_value(value) FILTER (eval_length = 4096) AS at_4k,
    any_value(value) FILTER (eval_length = 8192) AS at_8k,
    any_value(value) FILTER (eval_length = 16384) AS at_16k,
    any_value(value) FILTER (eval_length = 32768) AS at_32k,
    any_value(value) FILTER (eval_length = 65536) AS at_64k,
    any_value(value) FILTER (eval_length = 131072) AS at_128k,
    any_value(value) FILTER (eval_length IS NULL) AS average,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'harpe' AND place = 'Table 6'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW harpe.table_6 IS
    'Table 6. Needle tasks of RULER by choice of bases. Lengths: 4k to 128k for every method and their mean.';
COMMENT ON COLUMN harpe.table_6.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN harpe.table_6.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN harpe.table_6.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN harpe.table_6.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN harpe.table_6.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN harpe.table_6.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN harpe.table_6.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN harpe.table_6.at_4k IS 'NIAH at 4,096 tokens; percent.';
COMMENT ON COLUMN harpe.table_6.at_8k IS 'NIAH at 8,192 tokens; percent.';
COMMENT ON COLUMN harpe.table_6.at_16k IS 'NIAH at 16,384 tokens; percent.';
COMMENT ON COLUMN harpe.table_6.at_32k IS 'NIAH at 32,768 tokens; percent.';
COMMENT ON COLUMN harpe.table_6.at_64k IS 'NIAH at 65,536 tokens; percent.';
COMMENT ON COLUMN harpe.table_6.at_128k IS 'NIAH at 131,072 tokens; percent.';
COMMENT ON COLUMN harpe.table_6.average IS 'NIAH over all lengths; percent.';
COMMENT ON COLUMN harpe.table_6.lengths IS 'Lengths that the row stands on.';

CREATE VIEW harpe.table_7 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    train_length,
    source,
    any_value(value) FILTER (eval_length = 4096) AS at_4k,
    any_value(value) FILTER (eval_length = 8192) AS at_8k,
    any_value(value) FILTER (eval_length = 16384) AS at_16k,
    any_value(value) FILTER (eval_length = 32768) AS at_32k,
    any_value(value) FILTER (eval_length = 65536) AS at_64k,
    any_value(value) FILTER (eval_length = 131072) AS at_128k,
    any_value(value) FILTER (eval_length IS NULL) AS average,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'harpe' AND place = 'Table 7'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW harpe.table_7 IS
    'Table 7. RULER beside open models. Lengths: 4k to 128k for every model and their mean.';
COMMENT ON COLUMN harpe.table_7.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN harpe.table_7.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN harpe.table_7.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN harpe.table_7.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN harpe.table_7.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN harpe.table_7.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN harpe.table_7.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN harpe.table_7.at_4k IS 'RULER at 4,096 tokens; percent.';
COMMENT ON COLUMN harpe.table_7.at_8k IS 'RULER at 8,192 tokens; percent.';
COMMENT ON COLUMN harpe.table_7.at_16k IS 'RULER at 16,384 tokens; percent.';
COMMENT ON COLUMN harpe.table_7.at_32k IS 'RULER at 32,768 tokens; percent.';
COMMENT ON COLUMN harpe.table_7.at_64k IS 'RULER at 65,536 tokens; percent.';
COMMENT ON COLUMN harpe.table_7.at_128k IS 'RULER at 131,072 tokens; percent.';
COMMENT ON COLUMN harpe.table_7.average IS 'RULER over all lengths; percent.';
COMMENT ON COLUMN harpe.table_7.lengths IS 'Lengths that the row stands on.';

CREATE VIEW harpe.table_8 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    train_length,
    task,
    source,
    any_value(value) FILTER (eval_length = 4096) AS at_4k,
    any_value(value) FILTER (eval_length = 8192) AS at_8k,
    any_value(value) FILTER (eval_length = 16384) AS at_16k,
    any_value(value) FILTER (eval_length = 32768) AS at_32k,
    any_value(value) FILTER (eval_length = 65536) AS at_64k,
    any_value(value) FILTER (eval_length = 131072) AS at_128k,
    any_value(value) FILTER (eval_length IS NULL) AS average,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'harpe' AND place = 'Table 8'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW harpe.table_8 IS
    'Table 8. Each needle task of RULER. Lengths: 4k to 128k for every method and their mean.';
COMMENT ON COLUMN harpe.table_8.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN harpe.table_8.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN harpe.table_8.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN harpe.table_8.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN harpe.table_8.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN harpe.table_8.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN harpe.table_8.task IS 'Task of the benchmark.';
COMMENT ON COLUMN harpe.table_8.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN harpe.table_8.at_4k IS 'Niah_multiquery at 4,096 tokens; percent.';
COMMENT ON COLUMN harpe.table_8.at_8k IS 'Niah_multiquery at 8,192 tokens; percent.';
COMMENT ON COLUMN harpe.table_8.at_16k IS 'Niah_multiquery at 16,384 tokens; percent.';
COMMENT ON COLUMN harpe.table_8.at_32k IS 'Niah_multiquery at 32,768 tokens; percent.';
COMMENT ON COLUMN harpe.table_8.at_64k IS 'Niah_multiquery at 65,536 tokens; percent.';
COMMENT ON COLUMN harpe.table_8.at_128k IS 'Niah_multiquery at 131,072 tokens; percent.';
COMMENT ON COLUMN harpe.table_8.average IS 'Niah_multiquery over all lengths; percent.';
COMMENT ON COLUMN harpe.table_8.lengths IS 'Lengths that the row stands on.';

CREATE VIEW harpe.table_2 AS
SELECT
    paper_method,
    method,
    any_value(value) FILTER (setting = 'rope_base_head_1') AS head_1,
    any_value(value) FILTER (setting = 'rope_base_head_2') AS head_2,
    any_value(value) FILTER (setting = 'rope_base_head_3') AS head_3,
    any_value(value) FILTER (setting = 'rope_base_head_4') AS head_4,
    any_value(value) FILTER (setting = 'rope_base_head_5') AS head_5,
    any_value(value) FILTER (setting = 'rope_base_head_6') AS head_6,
    any_value(value) FILTER (setting = 'rope_base_head_7') AS head_7,
    any_value(value) FILTER (setting = 'rope_base_head_8') AS head_8,
    any_value(value) FILTER (setting = 'rope_base_head_9') AS head_9,
    any_value(value) FILTER (setting = 'rope_base_head_10') AS head_10,
    any_value(value) FILTER (setting = 'rope_base_head_11') AS head_11,
    any_value(value) FILTER (setting = 'rope_base_head_12') AS head_12,
    any_value(value) FILTER (setting = 'rope_base_head_13') AS head_13,
    any_value(value) FILTER (setting = 'rope_base_head_14') AS head_14,
    any_value(value) FILTER (setting = 'rope_base_head_15') AS head_15,
    any_value(value) FILTER (setting = 'rope_base_head_16') AS head_16,
    any_value(value) FILTER (setting = 'rope_base_head_17') AS head_17,
    any_value(value) FILTER (setting = 'rope_base_head_18') AS head_18,
    any_value(value) FILTER (setting = 'rope_base_head_19') AS head_19,
    any_value(value) FILTER (setting = 'rope_base_head_20') AS head_20,
    any_value(value) FILTER (setting = 'rope_base_head_21') AS head_21,
    any_value(value) FILTER (setting = 'rope_base_head_22') AS head_22,
    any_value(value) FILTER (setting = 'rope_base_head_23') AS head_23,
    any_value(value) FILTER (setting = 'rope_base_head_24') AS head_24,
    any_value(value) FILTER (setting = 'rope_base_head_25') AS head_25,
    any_value(value) FILTER (setting = 'rope_base_head_26') AS head_26,
    any_value(value) FILTER (setting = 'rope_base_head_27') AS head_27,
    any_value(value) FILTER (setting = 'rope_base_head_28') AS head_28,
    any_value(value) FILTER (setting = 'rope_base_head_29') AS head_29,
    any_value(value) FILTER (setting = 'rope_base_head_30') AS head_30,
    any_value(value) FILTER (setting = 'rope_base_head_31') AS head_31,
    any_value(value) FILTER (setting = 'rope_base_head_32') AS head_32
FROM papers.hyperparameter
WHERE paper = 'harpe' AND place = 'Table 2'
GROUP BY ALL
ORDER BY min(id);

COMMENT ON VIEW harpe.table_2 IS
    'Table 2. Base of each head. Lengths: none.';
COMMENT ON COLUMN harpe.table_2.paper_method IS 'Method as the paper names it.';
COMMENT ON COLUMN harpe.table_2.method IS 'Label of the method.';
COMMENT ON COLUMN harpe.table_2.head_1 IS 'Rope base head 1, as printed.';
COMMENT ON COLUMN harpe.table_2.head_2 IS 'Rope base head 2, as printed.';
COMMENT ON COLUMN harpe.table_2.head_3 IS 'Rope base head 3, as printed.';
COMMENT ON COLUMN harpe.table_2.head_4 IS 'Rope base head 4, as printed.';
COMMENT ON COLUMN harpe.table_2.head_5 IS 'Rope base head 5, as printed.';
COMMENT ON COLUMN harpe.table_2.head_6 IS 'Rope base head 6, as printed.';
COMMENT ON COLUMN harpe.table_2.head_7 IS 'Rope base head 7, as printed.';
COMMENT ON COLUMN harpe.table_2.head_8 IS 'Rope base head 8, as printed.';
COMMENT ON COLUMN harpe.table_2.head_9 IS 'Rope base head 9, as printed.';
COMMENT ON COLUMN harpe.table_2.head_10 IS 'Rope base head 10, as printed.';
COMMENT ON COLUMN harpe.table_2.head_11 IS 'Rope base head 11, as printed.';
COMMENT ON COLUMN harpe.table_2.head_12 IS 'Rope base head 12, as printed.';
COMMENT ON COLUMN harpe.table_2.head_13 IS 'Rope base head 13, as printed.';
COMMENT ON COLUMN harpe.table_2.head_14 IS 'Rope base head 14, as printed.';
COMMENT ON COLUMN harpe.table_2.head_15 IS 'Rope base head 15, as printed.';
COMMENT ON COLUMN harpe.table_2.head_16 IS 'Rope base head 16, as printed.';
COMMENT ON COLUMN harpe.table_2.head_17 IS 'Rope base head 17, as printed.';
COMMENT ON COLUMN harpe.table_2.head_18 IS 'Rope base head 18, as printed.';
COMMENT ON COLUMN harpe.table_2.head_19 IS 'Rope base head 19, as printed.';
COMMENT ON COLUMN harpe.table_2.head_20 IS 'Rope base head 20, as printed.';
COMMENT ON COLUMN harpe.table_2.head_21 IS 'Rope base head 21, as printed.';
COMMENT ON COLUMN harpe.table_2.head_22 IS 'Rope base head 22, as printed.';
COMMENT ON COLUMN harpe.table_2.head_23 IS 'Rope base head 23, as printed.';
COMMENT ON COLUMN harpe.table_2.head_24 IS 'Rope base head 24, as printed.';
COMMENT ON COLUMN harpe.table_2.head_25 IS 'Rope base head 25, as printed.';
COMMENT ON COLUMN harpe.table_2.head_26 IS 'Rope base head 26, as printed.';
COMMENT ON COLUMN harpe.table_2.head_27 IS 'Rope base head 27, as printed.';
COMMENT ON COLUMN harpe.table_2.head_28 IS 'Rope base head 28, as printed.';
COMMENT ON COLUMN harpe.table_2.head_29 IS 'Rope base head 29, as printed.';
COMMENT ON COLUMN harpe.table_2.head_30 IS 'Rope base head 30, as printed.';
COMMENT ON COLUMN harpe.table_2.head_31 IS 'Rope base head 31, as printed.';
COMMENT ON COLUMN harpe.table_2.head_32 IS 'Rope base head 32, as printed.';
