-- Written by `python -m tests.support.catalogs.paper_tables`, from catalog/reference.

CREATE SCHEMA lceg;

CREATE VIEW lceg.table_1 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    exact_attention,
    train_length,
    source,
    any_value(value) FILTER (paper_benchmark = 'PPL') AS ppl,
    any_value(value) FILTER (paper_benchmark = 'Needle') AS needle,
    any_value(value) FILTER (paper_benchmark = 'Mshots') AS mshots,
    any_value(value) FILTER (paper_benchmark = 'LongB') AS longb,
    any_value(value) FILTER (paper_benchmark = 'RULER') AS ruler,
    MAP {
        'ppl': any_value(lengths) FILTER (paper_benchmark = 'PPL'),
        'needle': any_value(lengths) FILTER (paper_benchmark = 'Needle'),
        'mshots': any_value(lengths) FILTER (paper_benchmark = 'Mshots'),
        'longb': any_value(lengths) FILTER (paper_benchmark = 'LongB'),
        'ruler': any_value(lengths) FILTER (paper_benchmark = 'RULER')
    } AS lengths
FROM papers.beside
WHERE paper = 'lceg' AND place = 'Table 1'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW lceg.table_1 IS
    'Table 1. All benchmarks. Lengths: PG19, LongBench and RULER at 32k; needle over 20 lengths from 1,000 to 62,872; shots not printed.';
COMMENT ON COLUMN lceg.table_1.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN lceg.table_1.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN lceg.table_1.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN lceg.table_1.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN lceg.table_1.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN lceg.table_1.exact_attention IS 'Whether every token can attend to every earlier one.';
COMMENT ON COLUMN lceg.table_1.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN lceg.table_1.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN lceg.table_1.ppl IS 'PPL; perplexity.';
COMMENT ON COLUMN lceg.table_1.needle IS 'Needle; percent.';
COMMENT ON COLUMN lceg.table_1.mshots IS 'Mshots; percent.';
COMMENT ON COLUMN lceg.table_1.longb IS 'LongB; percent.';
COMMENT ON COLUMN lceg.table_1.ruler IS 'RULER; percent.';
COMMENT ON COLUMN lceg.table_1.lengths IS 'Lengths that each column stands on, by its name.';

CREATE VIEW lceg.table_2 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    exact_attention,
    train_length,
    source,
    any_value(value) FILTER (task = 'pg19' AND eval_length = 2048) AS pg19_2k,
    any_value(value) FILTER (task = 'pg19' AND eval_length = 4096) AS pg19_4k,
    any_value(value) FILTER (task = 'pg19' AND eval_length = 8192) AS pg19_8k,
    any_value(value) FILTER (task = 'pg19' AND eval_length = 16384) AS pg19_16k,
    any_value(value) FILTER (task = 'pg19' AND eval_length = 32768) AS pg19_32k,
    any_value(value) FILTER (task = 'pg19' AND eval_length = 65536) AS pg19_64k,
    any_value(value) FILTER (task = 'proof_pile' AND eval_length = 2048) AS proof_pile_2k,
    any_value(value) FILTER (task = 'proof_pile' AND eval_length = 4096) AS proof_pile_4k,
    any_value(value) FILTER (task = 'proof_pile' AND eval_length = 8192) AS proof_pile_8k,
    any_value(value) FILTER (task = 'proof_pile' AND eval_length = 16384) AS proof_pile_16k,
    any_value(value) FILTER (task = 'proof_pile' AND eval_length = 32768) AS proof_pile_32k,
    any_value(value) FILTER (task = 'proof_pile' AND eval_length = 65536) AS proof_pile_64k,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'lceg' AND place = 'Table 2'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW lceg.table_2 IS
    'Table 2. Perplexity against length. Lengths: 2k to 64k for every method; some not printed at 64k.';
COMMENT ON COLUMN lceg.table_2.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN lceg.table_2.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN lceg.table_2.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN lceg.table_2.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN lceg.table_2.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN lceg.table_2.exact_attention IS 'Whether every token can attend to every earlier one.';
COMMENT ON COLUMN lceg.table_2.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN lceg.table_2.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN lceg.table_2.pg19_2k IS 'Pg19 at 2,048 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_2.pg19_4k IS 'Pg19 at 4,096 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_2.pg19_8k IS 'Pg19 at 8,192 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_2.pg19_16k IS 'Pg19 at 16,384 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_2.pg19_32k IS 'Pg19 at 32,768 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_2.pg19_64k IS 'Pg19 at 65,536 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_2.proof_pile_2k IS 'Proof_pile at 2,048 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_2.proof_pile_4k IS 'Proof_pile at 4,096 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_2.proof_pile_8k IS 'Proof_pile at 8,192 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_2.proof_pile_16k IS 'Proof_pile at 16,384 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_2.proof_pile_32k IS 'Proof_pile at 32,768 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_2.proof_pile_64k IS 'Proof_pile at 65,536 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_2.lengths IS 'Lengths that the row stands on.';

CREATE VIEW lceg.table_3 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    exact_attention,
    train_length,
    source,
    any_value(value) FILTER (eval_length = 4096) AS at_4k,
    any_value(value) FILTER (eval_length = 8192) AS at_8k,
    any_value(value) FILTER (eval_length = 16384) AS at_16k,
    any_value(value) FILTER (eval_length = 32768) AS at_32k,
    any_value(value) FILTER (eval_length = 65536) AS at_64k,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'lceg' AND place = 'Table 3'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW lceg.table_3 IS
    'Table 3. RULER against length. Lengths: 4k to 64k for every method; the base at 4k only.';
COMMENT ON COLUMN lceg.table_3.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN lceg.table_3.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN lceg.table_3.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN lceg.table_3.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN lceg.table_3.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN lceg.table_3.exact_attention IS 'Whether every token can attend to every earlier one.';
COMMENT ON COLUMN lceg.table_3.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN lceg.table_3.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN lceg.table_3.at_4k IS 'RULER at 4,096 tokens; percent.';
COMMENT ON COLUMN lceg.table_3.at_8k IS 'RULER at 8,192 tokens; percent.';
COMMENT ON COLUMN lceg.table_3.at_16k IS 'RULER at 16,384 tokens; percent.';
COMMENT ON COLUMN lceg.table_3.at_32k IS 'RULER at 32,768 tokens; percent.';
COMMENT ON COLUMN lceg.table_3.at_64k IS 'RULER at 65,536 tokens; percent.';
COMMENT ON COLUMN lceg.table_3.lengths IS 'Lengths that the row stands on.';

CREATE VIEW lceg.table_4 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    exact_attention,
    train_length,
    source,
    any_value(value) FILTER (task = 'narrativeqa') AS narrativeqa,
    any_value(value) FILTER (task = 'qasper') AS qasper,
    any_value(value) FILTER (task = 'multifieldqa_en') AS multifieldqa_en,
    any_value(value) FILTER (task = 'hotpotqa') AS hotpotqa,
    any_value(value) FILTER (task = '2wikimqa') AS wikimqa,
    any_value(value) FILTER (task = 'musique') AS musique,
    any_value(value) FILTER (task = 'gov_report') AS gov_report,
    any_value(value) FILTER (task = 'qmsum') AS qmsum,
    any_value(value) FILTER (task = 'multi_news') AS multi_news,
    any_value(value) FILTER (task = 'trec') AS trec,
    any_value(value) FILTER (task = 'triviaqa') AS triviaqa,
    any_value(value) FILTER (task = 'samsum') AS samsum,
    any_value(value) FILTER (task = 'passage_count') AS passage_count,
    any_value(value) FILTER (task = 'passage_retrieval_en') AS passage_retrieval_en,
    any_value(value) FILTER (task = 'lcc') AS lcc,
    any_value(value) FILTER (task = 'repobench-p') AS repobench_p,
    any_value(value) FILTER (task = 'average') AS average,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'lceg' AND place = 'Table 4'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW lceg.table_4 IS
    'Table 4. LongBench and the tasks'' average lengths in tokens. Lengths: the base at 4k; every other method at 32k.';
COMMENT ON COLUMN lceg.table_4.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN lceg.table_4.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN lceg.table_4.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN lceg.table_4.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN lceg.table_4.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN lceg.table_4.exact_attention IS 'Whether every token can attend to every earlier one.';
COMMENT ON COLUMN lceg.table_4.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN lceg.table_4.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN lceg.table_4.narrativeqa IS 'Narrativeqa; percent.';
COMMENT ON COLUMN lceg.table_4.qasper IS 'Qasper; percent.';
COMMENT ON COLUMN lceg.table_4.multifieldqa_en IS 'Multifieldqa_en; percent.';
COMMENT ON COLUMN lceg.table_4.hotpotqa IS 'Hotpotqa; percent.';
COMMENT ON COLUMN lceg.table_4.wikimqa IS '2wikimqa; percent.';
COMMENT ON COLUMN lceg.table_4.musique IS 'Musique; percent.';
COMMENT ON COLUMN lceg.table_4.gov_report IS 'Gov_report; percent.';
COMMENT ON COLUMN lceg.table_4.qmsum IS 'Qmsum; percent.';
COMMENT ON COLUMN lceg.table_4.multi_news IS 'Multi_news; percent.';
COMMENT ON COLUMN lceg.table_4.trec IS 'Trec; percent.';
COMMENT ON COLUMN lceg.table_4.triviaqa IS 'Triviaqa; percent.';
COMMENT ON COLUMN lceg.table_4.samsum IS 'Samsum; percent.';
COMMENT ON COLUMN lceg.table_4.passage_count IS 'Passage_count; percent.';
COMMENT ON COLUMN lceg.table_4.passage_retrieval_en IS 'Passage_retrieval_en; percent.';
COMMENT ON COLUMN lceg.table_4.lcc IS 'Lcc; percent.';
COMMENT ON COLUMN lceg.table_4.repobench_p IS 'Repobench-p; percent.';
COMMENT ON COLUMN lceg.table_4.average IS 'Average; percent.';
COMMENT ON COLUMN lceg.table_4.lengths IS 'Lengths that the row stands on.';

CREATE VIEW lceg.table_5 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    exact_attention,
    train_length,
    source,
    any_value(value) FILTER (eval_length = 2048) AS at_2k,
    any_value(value) FILTER (eval_length = 4096) AS at_4k,
    any_value(value) FILTER (eval_length = 8192) AS at_8k,
    any_value(value) FILTER (eval_length = 16384) AS at_16k,
    any_value(value) FILTER (eval_length = 32768) AS at_32k,
    any_value(value) FILTER (eval_length = 65536) AS at_64k,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'lceg' AND place = 'Table 5'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW lceg.table_5 IS
    'Table 5. Perplexity of Phi-2 against length. Lengths: 2k to 64k for every method; some not printed where they exceed their reach.';
COMMENT ON COLUMN lceg.table_5.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN lceg.table_5.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN lceg.table_5.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN lceg.table_5.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN lceg.table_5.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN lceg.table_5.exact_attention IS 'Whether every token can attend to every earlier one.';
COMMENT ON COLUMN lceg.table_5.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN lceg.table_5.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN lceg.table_5.at_2k IS 'Proof-file at 2,048 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_5.at_4k IS 'Proof-file at 4,096 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_5.at_8k IS 'Proof-file at 8,192 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_5.at_16k IS 'Proof-file at 16,384 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_5.at_32k IS 'Proof-file at 32,768 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_5.at_64k IS 'Proof-file at 65,536 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_5.lengths IS 'Lengths that the row stands on.';

CREATE VIEW lceg.table_6 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    exact_attention,
    train_length,
    source,
    any_value(value) FILTER (eval_length = 2048) AS at_2k,
    any_value(value) FILTER (eval_length = 4096) AS at_4k,
    any_value(value) FILTER (eval_length = 8192) AS at_8k,
    any_value(value) FILTER (eval_length = 16384) AS at_16k,
    any_value(value) FILTER (eval_length = 32768) AS at_32k,
    any_value(value) FILTER (eval_length = 65536) AS at_64k,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'lceg' AND place = 'Table 6'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW lceg.table_6 IS
    'Table 6. RULER of Phi-2 against length. Lengths: 2k to 64k for every method; the base at 2k only.';
COMMENT ON COLUMN lceg.table_6.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN lceg.table_6.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN lceg.table_6.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN lceg.table_6.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN lceg.table_6.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN lceg.table_6.exact_attention IS 'Whether every token can attend to every earlier one.';
COMMENT ON COLUMN lceg.table_6.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN lceg.table_6.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN lceg.table_6.at_2k IS 'RULER at 2,048 tokens; percent.';
COMMENT ON COLUMN lceg.table_6.at_4k IS 'RULER at 4,096 tokens; percent.';
COMMENT ON COLUMN lceg.table_6.at_8k IS 'RULER at 8,192 tokens; percent.';
COMMENT ON COLUMN lceg.table_6.at_16k IS 'RULER at 16,384 tokens; percent.';
COMMENT ON COLUMN lceg.table_6.at_32k IS 'RULER at 32,768 tokens; percent.';
COMMENT ON COLUMN lceg.table_6.at_64k IS 'RULER at 65,536 tokens; percent.';
COMMENT ON COLUMN lceg.table_6.lengths IS 'Lengths that the row stands on.';

CREATE VIEW lceg.table_9 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    exact_attention,
    train_length,
    scale,
    source,
    any_value(value) FILTER (eval_length = 4096) AS at_4k,
    any_value(value) FILTER (eval_length = 8192) AS at_8k,
    any_value(value) FILTER (eval_length = 16384) AS at_16k,
    any_value(value) FILTER (eval_length = 32768) AS at_32k,
    any_value(value) FILTER (eval_length = 65536) AS at_64k,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'lceg' AND place = 'Table 9'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW lceg.table_9 IS
    'Table 9. Perplexity against scale and length. Lengths: 4k to 64k, each at several scales.';
COMMENT ON COLUMN lceg.table_9.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN lceg.table_9.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN lceg.table_9.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN lceg.table_9.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN lceg.table_9.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN lceg.table_9.exact_attention IS 'Whether every token can attend to every earlier one.';
COMMENT ON COLUMN lceg.table_9.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN lceg.table_9.scale IS 'Scale of the method in the paper.';
COMMENT ON COLUMN lceg.table_9.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN lceg.table_9.at_4k IS 'PG19 at 4,096 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_9.at_8k IS 'PG19 at 8,192 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_9.at_16k IS 'PG19 at 16,384 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_9.at_32k IS 'PG19 at 32,768 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_9.at_64k IS 'PG19 at 65,536 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_9.lengths IS 'Lengths that the row stands on.';

CREATE VIEW lceg.table_10 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    exact_attention,
    train_length,
    source,
    any_value(value) FILTER (task = 'pg19' AND eval_length = 2048) AS pg19_2k,
    any_value(value) FILTER (task = 'pg19' AND eval_length = 4096) AS pg19_4k,
    any_value(value) FILTER (task = 'pg19' AND eval_length = 8192) AS pg19_8k,
    any_value(value) FILTER (task = 'pg19' AND eval_length = 16384) AS pg19_16k,
    any_value(value) FILTER (task = 'pg19' AND eval_length = 32768) AS pg19_32k,
    any_value(value) FILTER (task = 'proof_pile' AND eval_length = 2048) AS proof_pile_2k,
    any_value(value) FILTER (task = 'proof_pile' AND eval_length = 4096) AS proof_pile_4k,
    any_value(value) FILTER (task = 'proof_pile' AND eval_length = 8192) AS proof_pile_8k,
    any_value(value) FILTER (task = 'proof_pile' AND eval_length = 16384) AS proof_pile_16k,
    any_value(value) FILTER (task = 'proof_pile' AND eval_length = 32768) AS proof_pile_32k,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'lceg' AND place = 'Table 10'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW lceg.table_10 IS
    'Table 10. LongLoRA by its own recipe and by that of the study. Lengths: 2k to 32k for both.';
COMMENT ON COLUMN lceg.table_10.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN lceg.table_10.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN lceg.table_10.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN lceg.table_10.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN lceg.table_10.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN lceg.table_10.exact_attention IS 'Whether every token can attend to every earlier one.';
COMMENT ON COLUMN lceg.table_10.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN lceg.table_10.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN lceg.table_10.pg19_2k IS 'Pg19 at 2,048 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_10.pg19_4k IS 'Pg19 at 4,096 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_10.pg19_8k IS 'Pg19 at 8,192 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_10.pg19_16k IS 'Pg19 at 16,384 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_10.pg19_32k IS 'Pg19 at 32,768 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_10.proof_pile_2k IS 'Proof_pile at 2,048 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_10.proof_pile_4k IS 'Proof_pile at 4,096 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_10.proof_pile_8k IS 'Proof_pile at 8,192 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_10.proof_pile_16k IS 'Proof_pile at 16,384 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_10.proof_pile_32k IS 'Proof_pile at 32,768 tokens; perplexity.';
COMMENT ON COLUMN lceg.table_10.lengths IS 'Lengths that the row stands on.';

CREATE VIEW lceg.table_11 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    exact_attention,
    train_length,
    source,
    any_value(value) FILTER (task = 'narrativeqa') AS narrativeqa,
    any_value(value) FILTER (task = 'qasper') AS qasper,
    any_value(value) FILTER (task = 'multifieldqa_en') AS multifieldqa_en,
    any_value(value) FILTER (task = 'hotpotqa') AS hotpotqa,
    any_value(value) FILTER (task = '2wikimqa') AS wikimqa,
    any_value(value) FILTER (task = 'musique') AS musique,
    any_value(value) FILTER (task = 'gov_report') AS gov_report,
    any_value(value) FILTER (task = 'qmsum') AS qmsum,
    any_value(value) FILTER (task = 'multi_news') AS multi_news,
    any_value(value) FILTER (task = 'trec') AS trec,
    any_value(value) FILTER (task = 'triviaqa') AS triviaqa,
    any_value(value) FILTER (task = 'samsum') AS samsum,
    any_value(value) FILTER (task = 'passage_count') AS passage_count,
    any_value(value) FILTER (task = 'passage_retrieval_en') AS passage_retrieval_en,
    any_value(value) FILTER (task = 'lcc') AS lcc,
    any_value(value) FILTER (task = 'repobench-p') AS repobench_p,
    any_value(value) FILTER (task = 'average') AS average,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'lceg' AND place = 'Table 11'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW lceg.table_11 IS
    'Table 11. LongBench with LM-Infinite and the average lengths in thousands. Lengths: the base at 4k; every other method at 32k.';
COMMENT ON COLUMN lceg.table_11.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN lceg.table_11.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN lceg.table_11.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN lceg.table_11.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN lceg.table_11.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN lceg.table_11.exact_attention IS 'Whether every token can attend to every earlier one.';
COMMENT ON COLUMN lceg.table_11.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN lceg.table_11.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN lceg.table_11.narrativeqa IS 'Narrativeqa; percent.';
COMMENT ON COLUMN lceg.table_11.qasper IS 'Qasper; percent.';
COMMENT ON COLUMN lceg.table_11.multifieldqa_en IS 'Multifieldqa_en; percent.';
COMMENT ON COLUMN lceg.table_11.hotpotqa IS 'Hotpotqa; percent.';
COMMENT ON COLUMN lceg.table_11.wikimqa IS '2wikimqa; percent.';
COMMENT ON COLUMN lceg.table_11.musique IS 'Musique; percent.';
COMMENT ON COLUMN lceg.table_11.gov_report IS 'Gov_report; percent.';
COMMENT ON COLUMN lceg.table_11.qmsum IS 'Qmsum; percent.';
COMMENT ON COLUMN lceg.table_11.multi_news IS 'Multi_news; percent.';
COMMENT ON COLUMN lceg.table_11.trec IS 'Trec; percent.';
COMMENT ON COLUMN lceg.table_11.triviaqa IS 'Triviaqa; percent.';
COMMENT ON COLUMN lceg.table_11.samsum IS 'Samsum; percent.';
COMMENT ON COLUMN lceg.table_11.passage_count IS 'Passage_count; percent.';
COMMENT ON COLUMN lceg.table_11.passage_retrieval_en IS 'Passage_retrieval_en; percent.';
COMMENT ON COLUMN lceg.table_11.lcc IS 'Lcc; percent.';
COMMENT ON COLUMN lceg.table_11.repobench_p IS 'Repobench-p; percent.';
COMMENT ON COLUMN lceg.table_11.average IS 'Average; percent.';
COMMENT ON COLUMN lceg.table_11.lengths IS 'Lengths that the row stands on.';

CREATE VIEW lceg.table_12 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    exact_attention,
    train_length,
    source,
    any_value(value) FILTER (task = 'niah_single_1') AS niah_single_1,
    any_value(value) FILTER (task = 'niah_single_2') AS niah_single_2,
    any_value(value) FILTER (task = 'niah_single_3') AS niah_single_3,
    any_value(value) FILTER (task = 'niah_multikey_1') AS niah_multikey_1,
    any_value(value) FILTER (task = 'niah_multikey_2') AS niah_multikey_2,
    any_value(value) FILTER (task = 'niah_multikey_3') AS niah_multikey_3,
    any_value(value) FILTER (task = 'niah_multivalue') AS niah_multivalue,
    any_value(value) FILTER (task = 'niah_multiquery') AS niah_multiquery,
    any_value(value) FILTER (task = 'vt') AS vt,
    any_value(value) FILTER (task = 'cwe') AS cwe,
    any_value(value) FILTER (task = 'fwe') AS fwe,
    any_value(value) FILTER (task = 'qa_1') AS qa_1,
    any_value(value) FILTER (task = 'qa_2') AS qa_2,
    any_value(value) FILTER (task = 'average') AS average,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'lceg' AND place = 'Table 12'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW lceg.table_12 IS
    'Table 12. RULER by task at 4k. Lengths: 4k for every method.';
COMMENT ON COLUMN lceg.table_12.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN lceg.table_12.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN lceg.table_12.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN lceg.table_12.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN lceg.table_12.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN lceg.table_12.exact_attention IS 'Whether every token can attend to every earlier one.';
COMMENT ON COLUMN lceg.table_12.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN lceg.table_12.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN lceg.table_12.niah_single_1 IS 'Niah_single_1; percent.';
COMMENT ON COLUMN lceg.table_12.niah_single_2 IS 'Niah_single_2; percent.';
COMMENT ON COLUMN lceg.table_12.niah_single_3 IS 'Niah_single_3; percent.';
COMMENT ON COLUMN lceg.table_12.niah_multikey_1 IS 'Niah_multikey_1; percent.';
COMMENT ON COLUMN lceg.table_12.niah_multikey_2 IS 'Niah_multikey_2; percent.';
COMMENT ON COLUMN lceg.table_12.niah_multikey_3 IS 'Niah_multikey_3; percent.';
COMMENT ON COLUMN lceg.table_12.niah_multivalue IS 'Niah_multivalue; percent.';
COMMENT ON COLUMN lceg.table_12.niah_multiquery IS 'Niah_multiquery; percent.';
COMMENT ON COLUMN lceg.table_12.vt IS 'Vt; percent.';
COMMENT ON COLUMN lceg.table_12.cwe IS 'Cwe; percent.';
COMMENT ON COLUMN lceg.table_12.fwe IS 'Fwe; percent.';
COMMENT ON COLUMN lceg.table_12.qa_1 IS 'Qa_1; percent.';
COMMENT ON COLUMN lceg.table_12.qa_2 IS 'Qa_2; percent.';
COMMENT ON COLUMN lceg.table_12.average IS 'Average; percent.';
COMMENT ON COLUMN lceg.table_12.lengths IS 'Lengths that the row stands on.';

CREATE VIEW lceg.table_13 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    exact_attention,
    train_length,
    source,
    any_value(value) FILTER (task = 'niah_single_1') AS niah_single_1,
    any_value(value) FILTER (task = 'niah_single_2') AS niah_single_2,
    any_value(value) FILTER (task = 'niah_single_3') AS niah_single_3,
    any_value(value) FILTER (task = 'niah_multikey_1') AS niah_multikey_1,
    any_value(value) FILTER (task = 'niah_multikey_2') AS niah_multikey_2,
    any_value(value) FILTER (task = 'niah_multikey_3') AS niah_multikey_3,
    any_value(value) FILTER (task = 'niah_multivalue') AS niah_multivalue,
    any_value(value) FILTER (task = 'niah_multiquery') AS niah_multiquery,
    any_value(value) FILTER (task = 'vt') AS vt,
    any_value(value) FILTER (task = 'cwe') AS cwe,
    any_value(value) FILTER (task = 'fwe') AS fwe,
    any_value(value) FILTER (task = 'qa_1') AS qa_1,
    any_value(value) FILTER (task = 'qa_2') AS qa_2,
    any_value(value) FILTER (task = 'average') AS average,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'lceg' AND place = 'Table 13'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW lceg.table_13 IS
    'Table 13. RULER by task at 8k. Lengths: 8k for every method.';
COMMENT ON COLUMN lceg.table_13.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN lceg.table_13.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN lceg.table_13.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN lceg.table_13.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN lceg.table_13.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN lceg.table_13.exact_attention IS 'Whether every token can attend to every earlier one.';
COMMENT ON COLUMN lceg.table_13.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN lceg.table_13.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN lceg.table_13.niah_single_1 IS 'Niah_single_1; percent.';
COMMENT ON COLUMN lceg.table_13.niah_single_2 IS 'Niah_single_2; percent.';
COMMENT ON COLUMN lceg.table_13.niah_single_3 IS 'Niah_single_3; percent.';
COMMENT ON COLUMN lceg.table_13.niah_multikey_1 IS 'Niah_multikey_1; percent.';
COMMENT ON COLUMN lceg.table_13.niah_multikey_2 IS 'Niah_multikey_2; percent.';
COMMENT ON COLUMN lceg.table_13.niah_multikey_3 IS 'Niah_multikey_3; percent.';
COMMENT ON COLUMN lceg.table_13.niah_multivalue IS 'Niah_multivalue; percent.';
COMMENT ON COLUMN lceg.table_13.niah_multiquery IS 'Niah_multiquery; percent.';
COMMENT ON COLUMN lceg.table_13.vt IS 'Vt; percent.';
COMMENT ON COLUMN lceg.table_13.cwe IS 'Cwe; percent.';
COMMENT ON COLUMN lceg.table_13.fwe IS 'Fwe; percent.';
COMMENT ON COLUMN lceg.table_13.qa_1 IS 'Qa_1; percent.';
COMMENT ON COLUMN lceg.table_13.qa_2 IS 'Qa_2; percent.';
COMMENT ON COLUMN lceg.table_13.average IS 'Average; percent.';
COMMENT ON COLUMN lceg.table_13.lengths IS 'Lengths that the row stands on.';

CREATE VIEW lceg.table_14 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    exact_attention,
    train_length,
    source,
    any_value(value) FILTER (task = 'niah_single_1') AS niah_single_1,
    any_value(value) FILTER (task = 'niah_single_2') AS niah_single_2,
    any_value(value) FILTER (task = 'niah_single_3') AS niah_single_3,
    any_value(value) FILTER (task = 'niah_multikey_1') AS niah_multikey_1,
    any_value(value) FILTER (task = 'niah_multikey_2') AS niah_multikey_2,
    any_value(value) FILTER (task = 'niah_multikey_3') AS niah_multikey_3,
    any_value(value) FILTER (task = 'niah_multivalue') AS niah_multivalue,
    any_value(value) FILTER (task = 'niah_multiquery') AS niah_multiquery,
    any_value(value) FILTER (task = 'vt') AS vt,
    any_value(value) FILTER (task = 'cwe') AS cwe,
    any_value(value) FILTER (task = 'fwe') AS fwe,
    any_value(value) FILTER (task = 'qa_1') AS qa_1,
    any_value(value) FILTER (task = 'qa_2') AS qa_2,
    any_value(value) FILTER (task = 'average') AS average,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'lceg' AND place = 'Table 14'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW lceg.table_14 IS
    'Table 14. RULER by task at 16k. Lengths: 16k for every method.';
COMMENT ON COLUMN lceg.table_14.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN lceg.table_14.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN lceg.table_14.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN lceg.table_14.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN lceg.table_14.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN lceg.table_14.exact_attention IS 'Whether every token can attend to every earlier one.';
COMMENT ON COLUMN lceg.table_14.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN lceg.table_14.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN lceg.table_14.niah_single_1 IS 'Niah_single_1; percent.';
COMMENT ON COLUMN lceg.table_14.niah_single_2 IS 'Niah_single_2; percent.';
COMMENT ON COLUMN lceg.table_14.niah_single_3 IS 'Niah_single_3; percent.';
COMMENT ON COLUMN lceg.table_14.niah_multikey_1 IS 'Niah_multikey_1; percent.';
COMMENT ON COLUMN lceg.table_14.niah_multikey_2 IS 'Niah_multikey_2; percent.';
COMMENT ON COLUMN lceg.table_14.niah_multikey_3 IS 'Niah_multikey_3; percent.';
COMMENT ON COLUMN lceg.table_14.niah_multivalue IS 'Niah_multivalue; percent.';
COMMENT ON COLUMN lceg.table_14.niah_multiquery IS 'Niah_multiquery; percent.';
COMMENT ON COLUMN lceg.table_14.vt IS 'Vt; percent.';
COMMENT ON COLUMN lceg.table_14.cwe IS 'Cwe; percent.';
COMMENT ON COLUMN lceg.table_14.fwe IS 'Fwe; percent.';
COMMENT ON COLUMN lceg.table_14.qa_1 IS 'Qa_1; percent.';
COMMENT ON COLUMN lceg.table_14.qa_2 IS 'Qa_2; percent.';
COMMENT ON COLUMN lceg.table_14.average IS 'Average; percent.';
COMMENT ON COLUMN lceg.table_14.lengths IS 'Lengths that the row stands on.';

CREATE VIEW lceg.table_15 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    exact_attention,
    train_length,
    source,
    any_value(value) FILTER (task = 'niah_single_1') AS niah_single_1,
    any_value(value) FILTER (task = 'niah_single_2') AS niah_single_2,
    any_value(value) FILTER (task = 'niah_single_3') AS niah_single_3,
    any_value(value) FILTER (task = 'niah_multikey_1') AS niah_multikey_1,
    any_value(value) FILTER (task = 'niah_multikey_2') AS niah_multikey_2,
    any_value(value) FILTER (task = 'niah_multikey_3') AS niah_multikey_3,
    any_value(value) FILTER (task = 'niah_multivalue') AS niah_multivalue,
    any_value(value) FILTER (task = 'niah_multiquery') AS niah_multiquery,
    any_value(value) FILTER (task = 'vt') AS vt,
    any_value(value) FILTER (task = 'cwe') AS cwe,
    any_value(value) FILTER (task = 'fwe') AS fwe,
    any_value(value) FILTER (task = 'qa_1') AS qa_1,
    any_value(value) FILTER (task = 'qa_2') AS qa_2,
    any_value(value) FILTER (task = 'average') AS average,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'lceg' AND place = 'Table 15'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW lceg.table_15 IS
    'Table 15. RULER by task at 32k. Lengths: 32k for every method.';
COMMENT ON COLUMN lceg.table_15.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN lceg.table_15.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN lceg.table_15.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN lceg.table_15.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN lceg.table_15.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN lceg.table_15.exact_attention IS 'Whether every token can attend to every earlier one.';
COMMENT ON COLUMN lceg.table_15.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN lceg.table_15.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN lceg.table_15.niah_single_1 IS 'Niah_single_1; percent.';
COMMENT ON COLUMN lceg.table_15.niah_single_2 IS 'Niah_single_2; percent.';
COMMENT ON COLUMN lceg.table_15.niah_single_3 IS 'Niah_single_3; percent.';
COMMENT ON COLUMN lceg.table_15.niah_multikey_1 IS 'Niah_multikey_1; percent.';
COMMENT ON COLUMN lceg.table_15.niah_multikey_2 IS 'Niah_multikey_2; percent.';
COMMENT ON COLUMN lceg.table_15.niah_multikey_3 IS 'Niah_multikey_3; percent.';
COMMENT ON COLUMN lceg.table_15.niah_multivalue IS 'Niah_multivalue; percent.';
COMMENT ON COLUMN lceg.table_15.niah_multiquery IS 'Niah_multiquery; percent.';
COMMENT ON COLUMN lceg.table_15.vt IS 'Vt; percent.';
COMMENT ON COLUMN lceg.table_15.cwe IS 'Cwe; percent.';
COMMENT ON COLUMN lceg.table_15.fwe IS 'Fwe; percent.';
COMMENT ON COLUMN lceg.table_15.qa_1 IS 'Qa_1; percent.';
COMMENT ON COLUMN lceg.table_15.qa_2 IS 'Qa_2; percent.';
COMMENT ON COLUMN lceg.table_15.average IS 'Average; percent.';
COMMENT ON COLUMN lceg.table_15.lengths IS 'Lengths that the row stands on.';

CREATE VIEW lceg.table_16 AS
SELECT
    study,
    base_model,
    paper_method,
    method,
    frozen,
    exact_attention,
    train_length,
    source,
    any_value(value) FILTER (task = 'niah_single_1') AS niah_single_1,
    any_value(value) FILTER (task = 'niah_single_2') AS niah_single_2,
    any_value(value) FILTER (task = 'niah_single_3') AS niah_single_3,
    any_value(value) FILTER (task = 'niah_multikey_1') AS niah_multikey_1,
    any_value(value) FILTER (task = 'niah_multikey_2') AS niah_multikey_2,
    any_value(value) FILTER (task = 'niah_multikey_3') AS niah_multikey_3,
    any_value(value) FILTER (task = 'niah_multivalue') AS niah_multivalue,
    any_value(value) FILTER (task = 'niah_multiquery') AS niah_multiquery,
    any_value(value) FILTER (task = 'vt') AS vt,
    any_value(value) FILTER (task = 'cwe') AS cwe,
    any_value(value) FILTER (task = 'fwe') AS fwe,
    any_value(value) FILTER (task = 'qa_1') AS qa_1,
    any_value(value) FILTER (task = 'qa_2') AS qa_2,
    any_value(value) FILTER (task = 'average') AS average,
    list_sort(list_distinct(flatten(list(lengths) FILTER (lengths IS NOT NULL)))) AS lengths
FROM papers.beside
WHERE paper = 'lceg' AND place = 'Table 16'
GROUP BY ALL
ORDER BY study, min(id), source DESC;

COMMENT ON VIEW lceg.table_16 IS
    'Table 16. RULER by task at 64k. Lengths: 64k for every method.';
COMMENT ON COLUMN lceg.table_16.study IS 'Name of our study; NULL if none has a figure of the table.';
COMMENT ON COLUMN lceg.table_16.base_model IS 'Registered name of the base model; NULL if none is registered.';
COMMENT ON COLUMN lceg.table_16.paper_method IS 'Method or model as the paper names it.';
COMMENT ON COLUMN lceg.table_16.method IS 'Label of the method; NULL for weights that others trained.';
COMMENT ON COLUMN lceg.table_16.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN lceg.table_16.exact_attention IS 'Whether every token can attend to every earlier one.';
COMMENT ON COLUMN lceg.table_16.train_length IS 'Tokens of the rows that the paper''s weights were last trained on.';
COMMENT ON COLUMN lceg.table_16.source IS 'paper: as printed. ours: what the study found; NULL where it is not complete.';
COMMENT ON COLUMN lceg.table_16.niah_single_1 IS 'Niah_single_1; percent.';
COMMENT ON COLUMN lceg.table_16.niah_single_2 IS 'Niah_single_2; percent.';
COMMENT ON COLUMN lceg.table_16.niah_single_3 IS 'Niah_single_3; percent.';
COMMENT ON COLUMN lceg.table_16.niah_multikey_1 IS 'Niah_multikey_1; percent.';
COMMENT ON COLUMN lceg.table_16.niah_multikey_2 IS 'Niah_multikey_2; percent.';
COMMENT ON COLUMN lceg.table_16.niah_multikey_3 IS 'Niah_multikey_3; percent.';
COMMENT ON COLUMN lceg.table_16.niah_multivalue IS 'Niah_multivalue; percent.';
COMMENT ON COLUMN lceg.table_16.niah_multiquery IS 'Niah_multiquery; percent.';
COMMENT ON COLUMN lceg.table_16.vt IS 'Vt; percent.';
COMMENT ON COLUMN lceg.table_16.cwe IS 'Cwe; percent.';
COMMENT ON COLUMN lceg.table_16.fwe IS 'Fwe; percent.';
COMMENT ON COLUMN lceg.table_16.qa_1 IS 'Qa_1; percent.';
COMMENT ON COLUMN lceg.table_16.qa_2 IS 'Qa_2; percent.';
COMMENT ON COLUMN lceg.table_16.average IS 'Average; percent.';
COMMENT ON COLUMN lceg.table_16.lengths IS 'Lengths that the row stands on.';

CREATE VIEW lceg.table_8 AS
SELECT
    paper_method,
    method,
    any_value(value) FILTER (eval_length = 4096) AS at_4k,
    any_value(value) FILTER (eval_length = 8192) AS at_8k,
    any_value(value) FILTER (eval_length = 16384) AS at_16k,
    any_value(value) FILTER (eval_length = 32768) AS at_32k,
    any_value(value) FILTER (eval_length = 65536) AS at_64k
FROM papers.hyperparameter
WHERE paper = 'lceg' AND place = 'Table 8'
GROUP BY ALL
ORDER BY min(id);

COMMENT ON VIEW lceg.table_8 IS
    'Table 8. Scale at which each length is evaluated. Lengths: 4k to 64k for every method.';
COMMENT ON COLUMN lceg.table_8.paper_method IS 'Method as the paper names it.';
COMMENT ON COLUMN lceg.table_8.method IS 'Label of the method.';
COMMENT ON COLUMN lceg.table_8.at_4k IS '4,096 tokens, as printed.';
COMMENT ON COLUMN lceg.table_8.at_8k IS '8,192 tokens, as printed.';
COMMENT ON COLUMN lceg.table_8.at_16k IS '16,384 tokens, as printed.';
COMMENT ON COLUMN lceg.table_8.at_32k IS '32,768 tokens, as printed.';
COMMENT ON COLUMN lceg.table_8.at_64k IS '65,536 tokens, as printed.';
