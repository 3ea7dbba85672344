-- What comparisons say and how sure they are. Bootstraps and tests are no SQL: catalog/comparisons
-- fills these tables as the catalog is built. They have a schema of their own, so that the digest of
-- what studies computed leaves them out.

CREATE SCHEMA compared;

CREATE TABLE compared.paired_difference (
    study VARCHAR NOT NULL,
    base_model VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    task VARCHAR,
    tasks VARCHAR NOT NULL,
    profile VARCHAR,
    eval_length BIGINT NOT NULL,
    metric VARCHAR,
    unit VARCHAR,
    higher_is_better BOOLEAN NOT NULL,
    method VARCHAR NOT NULL,
    frozen BOOLEAN NOT NULL,
    exact_attention BOOLEAN NOT NULL,
    other_method VARCHAR NOT NULL,
    other_frozen BOOLEAN NOT NULL,
    other_exact_attention BOOLEAN NOT NULL,
    value DOUBLE NOT NULL,
    other_value DOUBLE NOT NULL,
    difference DOUBLE NOT NULL,
    ci_low DOUBLE,
    ci_high DOUBLE,
    lowest DOUBLE NOT NULL,
    highest DOUBLE NOT NULL,
    seeds_low DOUBLE,
    seeds_high DOUBLE,
    p_value DOUBLE NOT NULL,
    p_holm DOUBLE NOT NULL,
    holm_family VARCHAR NOT NULL,
    num_comparisons BIGINT NOT NULL,
    test VARCHAR NOT NULL,
    num_clusters BIGINT NOT NULL,
    num_samples BIGINT NOT NULL,
    num_seeds BIGINT NOT NULL,
    num_better BIGINT NOT NULL,
    num_worse BIGINT NOT NULL,
    smallest_detectable DOUBLE
);
COMMENT ON TABLE compared.paired_difference IS
    'Pairs of methods on the same prompts, each once; the base model never first.';

CREATE VIEW paired_difference AS
WITH both_ways AS (
    FROM compared.paired_difference
    UNION ALL BY NAME
    SELECT * REPLACE (
        other_method AS method,
        other_frozen AS frozen,
        other_exact_attention AS exact_attention,
        method AS other_method,
        frozen AS other_frozen,
        exact_attention AS other_exact_attention,
        other_value AS value,
        value AS other_value,
        num_worse AS num_better,
        num_better AS num_worse,
        0 - difference AS difference,
        0 - ci_high AS ci_low,
        0 - ci_low AS ci_high,
        0 - highest AS lowest,
        0 - lowest AS highest,
        0 - seeds_high AS seeds_low,
        0 - seeds_low AS seeds_high
    )
    FROM compared.paired_difference
)
SELECT
    study,
    base_model,
    method,
    frozen,
    other_method,
    other_frozen,
    benchmark,
    task,
    eval_length,
    difference,
    ci_low,
    ci_high,
    p_value,
    p_holm,
    CASE
        WHEN num_better + num_worse = 0 THEN 'the same'
        WHEN p_holm <= 0.05 AND ci_low * ci_high > 0 THEN
            CASE
                WHEN lowest * difference <= 0 OR highest * difference <= 0 THEN 'not in every seed'
                WHEN (difference > 0) = higher_is_better THEN 'better'
                ELSE 'worse'
            END
        WHEN ci_low IS NULL OR smallest_detectable IS NULL THEN 'too few'
        ELSE 'no difference found'
    END AS verdict,
    smallest_detectable,
    holm_family,
    num_comparisons,
    num_clusters,
    num_samples,
    num_seeds,
    lowest,
    highest,
    num_better,
    num_worse,
    value,
    other_value,
    metric,
    unit,
    higher_is_better,
    test,
    exact_attention,
    other_exact_attention,
    tasks,
    profile,
    seeds_low,
    seeds_high
FROM both_ways
ORDER BY study, base_model, benchmark, eval_length, tasks, method, frozen, other_method, other_frozen;

COMMENT ON VIEW paired_difference IS
    'Two methods on the same prompts: over all tasks of a benchmark that both are asked, and each task against the base model.';
COMMENT ON COLUMN paired_difference.study IS 'Name of the study.';
COMMENT ON COLUMN paired_difference.base_model IS 'Registered name of the base model.';
COMMENT ON COLUMN paired_difference.method IS 'Label of the method.';
COMMENT ON COLUMN paired_difference.frozen IS 'Whether it was applied without fine-tuning.';
COMMENT ON COLUMN paired_difference.other_method IS
    'Label of the method that it is compared with; every pair has two rows.';
COMMENT ON COLUMN paired_difference.other_frozen IS
    'Whether that one was applied without fine-tuning.';
COMMENT ON COLUMN paired_difference.benchmark IS 'Registered name of the benchmark.';
COMMENT ON COLUMN paired_difference.task IS
    'Task of the benchmark; NULL for the mean over several.';
COMMENT ON COLUMN paired_difference.eval_length IS 'Evaluated context in tokens.';
COMMENT ON COLUMN paired_difference.difference IS 'Value less the other value.';
COMMENT ON COLUMN paired_difference.ci_low IS
    'Lower bound of its 95 % interval over documents or prompts; NULL below six of them.';
COMMENT ON COLUMN paired_difference.ci_high IS 'Upper bound of it.';
COMMENT ON COLUMN paired_difference.p_value IS
    'Two-sided, of no difference, of this comparison alone; 1 where the test finds the opposite of the difference.';
COMMENT ON COLUMN paired_difference.p_holm IS
    'The same, held against all comparisons of the family (Holm).';
COMMENT ON COLUMN paired_difference.verdict IS
    'better, worse, not in every seed, the same (on every document), no difference found, or too few (documents to find any).';
COMMENT ON COLUMN paired_difference.smallest_detectable IS
    'Difference that the comparison, as first of its family, finds in 4 of 5 studies; NULL where none can be found, or all differences are 0.';
COMMENT ON COLUMN paired_difference.holm_family IS
    'Comparisons that p_holm stands for: benchmark, tasks, length, and with whom each method is compared.';
COMMENT ON COLUMN paired_difference.num_comparisons IS 'Pairs in the family.';
COMMENT ON COLUMN paired_difference.num_clusters IS
    'Documents or prompts that are resampled and tested as one.';
COMMENT ON COLUMN paired_difference.num_samples IS
    'Scored prompts or windows of each method, all seeds together.';
COMMENT ON COLUMN paired_difference.num_seeds IS
    'Seeds that both methods have; those that differ in nothing share a result and count once.';
COMMENT ON COLUMN paired_difference.lowest IS 'Difference of the seed where it is lowest.';
COMMENT ON COLUMN paired_difference.highest IS 'Difference of the seed where it is highest.';
COMMENT ON COLUMN paired_difference.num_better IS
    'Documents or prompts on which the method is better.';
COMMENT ON COLUMN paired_difference.num_worse IS 'Those on which the other is.';
COMMENT ON COLUMN paired_difference.value IS 'Mean over the tasks and seeds that both are asked.';
COMMENT ON COLUMN paired_difference.other_value IS 'The other method''s, over the same.';
COMMENT ON COLUMN paired_difference.metric IS 'Default metric of the benchmark.';
COMMENT ON COLUMN paired_difference.unit IS 'Unit of both values and the difference.';
COMMENT ON COLUMN paired_difference.higher_is_better IS 'Which direction is better.';
COMMENT ON COLUMN paired_difference.test IS
    'mcnemar (exact) or wilcoxon (signed ranks over documents).';
COMMENT ON COLUMN paired_difference.exact_attention IS
    'Whether every token can attend to every earlier one.';
COMMENT ON COLUMN paired_difference.other_exact_attention IS 'The same of the other method.';
COMMENT ON COLUMN paired_difference.tasks IS 'Tasks that both are asked, separated by commas.';
COMMENT ON COLUMN paired_difference.profile IS
    'Form of the benchmark: faithful, clean, fast or tiny.';
COMMENT ON COLUMN paired_difference.seeds_low IS
    'Lower bound of a 95 % interval for other seeds too, not only other prompts; NULL with one seed.';
COMMENT ON COLUMN paired_difference.seeds_high IS 'Upper bound of it.';

CREATE VIEW expectations AS
SELECT
    e.study,
    e.entry,
    e.text,
    e.base_model,
    e.method,
    e.frozen,
    e.expected,
    e.other_method,
    e.other_frozen,
    e.benchmark,
    e.eval_length,
    CASE
        WHEN d.verdict IS NULL THEN 'not measured'
        WHEN d.verdict = e.expected THEN 'confirmed'
        WHEN d.verdict IN ('better', 'worse') THEN 'contradicted'
        ELSE 'undecided'
    END AS outcome,
    d.difference,
    d.ci_low,
    d.ci_high,
    d.p_holm,
    d.verdict,
    d.tasks,
    d.holm_family
FROM store.expectation e
LEFT JOIN paired_difference d
    USING (study, base_model, method, frozen, other_method, other_frozen, benchmark, eval_length)
-- Several tasks count as their mean; the comparisons of single tasks with the base model do not.
QUALIFY d.tasks IS NULL OR len(string_split(d.tasks, ', ')) = max(len(string_split(d.tasks, ', ')))
    OVER (PARTITION BY e.rowid, d.profile)
ORDER BY e.rowid;

COMMENT ON VIEW expectations IS
    'The comparisons that a study''s `expects` predicts, each with its measured difference and outcome.';
COMMENT ON COLUMN expectations.study IS 'Name of the study.';
COMMENT ON COLUMN expectations.entry IS 'Index of the entry of `expects`.';
COMMENT ON COLUMN expectations.text IS 'The expectation in words.';
COMMENT ON COLUMN expectations.base_model IS 'Registered name of the base model.';
COMMENT ON COLUMN expectations.method IS 'Label of the method.';
COMMENT ON COLUMN expectations.frozen IS 'Whether it was applied without fine-tuning.';
COMMENT ON COLUMN expectations.expected IS
    'better or worse: how the method is expected to score, compared with the other.';
COMMENT ON COLUMN expectations.other_method IS 'Label of the method that it is compared with.';
COMMENT ON COLUMN expectations.other_frozen IS
    'Whether that one was applied without fine-tuning.';
COMMENT ON COLUMN expectations.benchmark IS 'Registered name of the benchmark.';
COMMENT ON COLUMN expectations.eval_length IS 'Evaluated context in tokens.';
COMMENT ON COLUMN expectations.outcome IS
    'confirmed or contradicted if the verdict is better or worse, undecided for any other verdict, not measured without one.';
COMMENT ON COLUMN expectations.difference IS
    'Value less the other value; see paired_difference for this column and the next five.';
COMMENT ON COLUMN expectations.ci_low IS 'Lower bound of its 95 % interval.';
COMMENT ON COLUMN expectations.ci_high IS 'Upper bound of it.';
COMMENT ON COLUMN expectations.p_holm IS 'P-value, corrected over the comparisons of the family (Holm).';
COMMENT ON COLUMN expectations.verdict IS 'Verdict of the comparison.';
COMMENT ON COLUMN expectations.tasks IS 'Tasks that both methods were evaluated on.';
COMMENT ON COLUMN expectations.holm_family IS 'Name of the family of comparisons.';

CREATE TABLE compared.effective_length (
    study VARCHAR NOT NULL,
    base_model VARCHAR NOT NULL,
    method VARCHAR NOT NULL,
    frozen BOOLEAN NOT NULL,
    benchmark VARCHAR NOT NULL,
    task VARCHAR NOT NULL,
    tokens BIGINT NOT NULL,
    ci_low BIGINT NOT NULL,
    ci_high BIGINT NOT NULL,
    longest BIGINT NOT NULL,
    num_lengths BIGINT NOT NULL,
    num_seeds BIGINT NOT NULL,
    threshold DOUBLE NOT NULL,
    unit VARCHAR,
    higher_is_better BOOLEAN NOT NULL,
    exact_attention BOOLEAN NOT NULL,
    profile VARCHAR
);
COMMENT ON TABLE compared.effective_length IS 'Longest contexts that methods use.';

CREATE VIEW effective_length AS
SELECT
    study,
    base_model,
    method,
    frozen,
    benchmark,
    task,
    tokens,
    ci_low,
    ci_high,
    longest,
    num_lengths,
    num_seeds,
    threshold,
    unit,
    higher_is_better,
    exact_attention,
    profile
FROM compared.effective_length
ORDER BY rowid;

COMMENT ON VIEW effective_length IS
    'How long a context each method uses: up to where it holds the base model''s score at its own length.';
COMMENT ON COLUMN effective_length.study IS 'Name of the study.';
COMMENT ON COLUMN effective_length.base_model IS 'Registered name of the base model.';
COMMENT ON COLUMN effective_length.method IS 'Label of the method.';
COMMENT ON COLUMN effective_length.frozen IS 'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN effective_length.benchmark IS 'Registered name of the benchmark.';
COMMENT ON COLUMN effective_length.task IS 'Task of the benchmark.';
COMMENT ON COLUMN effective_length.tokens IS
    'Longest evaluated length up to which the mean over seeds reaches the threshold; 0 if none.';
COMMENT ON COLUMN effective_length.ci_low IS
    'Lower bound of its 95 % interval, one of the evaluated lengths or 0.';
COMMENT ON COLUMN effective_length.ci_high IS
    'Upper bound of it; where it is the longest evaluated length, the true one may be longer.';
COMMENT ON COLUMN effective_length.longest IS
    'Longest length that was evaluated and is done, with all shorter ones.';
COMMENT ON COLUMN effective_length.num_lengths IS 'Lengths up to that one.';
COMMENT ON COLUMN effective_length.num_seeds IS 'Seeds behind it.';
COMMENT ON COLUMN effective_length.threshold IS
    'What a score must reach: 90 % of the base model''s accuracy at its longest evaluated length within its trained context, or 110 % of its perplexity.';
COMMENT ON COLUMN effective_length.unit IS 'Unit of the threshold.';
COMMENT ON COLUMN effective_length.higher_is_better IS
    'Whether the threshold is the least or the most that a score may be.';
COMMENT ON COLUMN effective_length.exact_attention IS
    'Whether every token can attend to every earlier one.';
COMMENT ON COLUMN effective_length.profile IS
    'Form of the benchmark: faithful, clean, fast or tiny.';

CREATE TABLE compared.perplexity_agreement (
    study VARCHAR NOT NULL,
    base_model VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    eval_length BIGINT NOT NULL,
    methods VARCHAR NOT NULL,
    num_methods BIGINT NOT NULL,
    spearman DOUBLE,
    spearman_low DOUBLE,
    spearman_high DOUBLE,
    kendall DOUBLE,
    kendall_low DOUBLE,
    kendall_high DOUBLE,
    p_value DOUBLE,
    p_holm DOUBLE
);
COMMENT ON TABLE compared.perplexity_agreement IS 'Rank agreement of perplexity and downstream scores.';

CREATE VIEW perplexity_agreement AS
SELECT
    study,
    base_model,
    benchmark,
    eval_length,
    methods,
    num_methods,
    spearman,
    spearman_low,
    spearman_high,
    kendall,
    kendall_low,
    kendall_high,
    p_value,
    p_holm
FROM compared.perplexity_agreement
ORDER BY rowid;

COMMENT ON VIEW perplexity_agreement IS
    'Whether methods of lower perplexity do better downstream, with and without approximate attention (as LCEG''s Figure 4).';
COMMENT ON COLUMN perplexity_agreement.study IS 'Name of the study.';
COMMENT ON COLUMN perplexity_agreement.base_model IS 'Registered name of the base model.';
COMMENT ON COLUMN perplexity_agreement.benchmark IS 'The downstream benchmark.';
COMMENT ON COLUMN perplexity_agreement.eval_length IS 'Evaluated context in tokens, of both.';
COMMENT ON COLUMN perplexity_agreement.methods IS
    'all, or those with exact attention, where that is not all: approximate ones can have low perplexity without reading the context.';
COMMENT ON COLUMN perplexity_agreement.num_methods IS
    'Methods with both scores over the usual tasks.';
COMMENT ON COLUMN perplexity_agreement.spearman IS
    'Spearman''s rank correlation, 1 where lower perplexity goes with higher scores throughout; NULL where one side does not differ.';
COMMENT ON COLUMN perplexity_agreement.spearman_low IS
    'Lower bound of its approximate 95 % interval over methods; NULL below five.';
COMMENT ON COLUMN perplexity_agreement.spearman_high IS 'Upper bound of it.';
COMMENT ON COLUMN perplexity_agreement.kendall IS 'Kendall''s tau-b.';
COMMENT ON COLUMN perplexity_agreement.kendall_low IS
    'Lower bound of its approximate 95 % interval over methods; NULL below five.';
COMMENT ON COLUMN perplexity_agreement.kendall_high IS 'Upper bound of it.';
COMMENT ON COLUMN perplexity_agreement.p_value IS
    'Two-sided, of unrelated orders, by Kendall''s; NULL where one side does not differ.';
COMMENT ON COLUMN perplexity_agreement.p_holm IS
    'The same, held against all rows of the study and base model (Holm).';

CREATE VIEW perplexity_vs_downstream AS
SELECT
    d.study,
    d.base_model,
    d.method,
    d.frozen,
    d.exact_attention,
    d.eval_length,
    p.value AS perplexity,
    d.benchmark,
    d.value
FROM benchmark_by_length d
JOIN benchmark_by_length p
    ON p.study = d.study AND p.base_model = d.base_model AND p.method = d.method
    AND p.frozen = d.frozen AND p.eval_length = d.eval_length
WHERE p.benchmark = 'perplexity' AND d.benchmark <> 'perplexity' AND d.higher_is_better
    AND p.value IS NOT NULL AND d.value IS NOT NULL AND p.has_usual_tasks AND d.has_usual_tasks
ORDER BY d.study, d.base_model, d.eval_length, d.benchmark, d.method, d.frozen;

COMMENT ON VIEW perplexity_vs_downstream IS
    'Each method''s perplexity beside its score downstream at the same length: the points behind perplexity_agreement.';
COMMENT ON COLUMN perplexity_vs_downstream.study IS 'Name of the study.';
COMMENT ON COLUMN perplexity_vs_downstream.base_model IS 'Registered name of the base model.';
COMMENT ON COLUMN perplexity_vs_downstream.method IS 'Label of the method.';
COMMENT ON COLUMN perplexity_vs_downstream.frozen IS
    'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN perplexity_vs_downstream.exact_attention IS
    'Whether every token can attend to every earlier one.';
COMMENT ON COLUMN perplexity_vs_downstream.eval_length IS 'Evaluated context in tokens, of both.';
COMMENT ON COLUMN perplexity_vs_downstream.perplexity IS
    'Mean over tasks and seeds; lower is better.';
COMMENT ON COLUMN perplexity_vs_downstream.benchmark IS 'The downstream benchmark.';
COMMENT ON COLUMN perplexity_vs_downstream.value IS
    'Its mean over tasks and seeds; higher is better.';

CREATE TABLE compared.nll_difference (
    study VARCHAR NOT NULL,
    base_model VARCHAR NOT NULL,
    method VARCHAR NOT NULL,
    frozen BOOLEAN NOT NULL,
    benchmark VARCHAR NOT NULL,
    task VARCHAR NOT NULL,
    eval_length BIGINT NOT NULL,
    band_start BIGINT NOT NULL,
    band_end BIGINT NOT NULL,
    difference DOUBLE,
    ci_low DOUBLE,
    ci_high DOUBLE,
    num_bins BIGINT NOT NULL
);
COMMENT ON TABLE compared.nll_difference IS
    'Differences in NLL from the base model, by band of positions.';

CREATE VIEW nll_against_base AS FROM compared.nll_difference ORDER BY rowid;

COMMENT ON VIEW nll_against_base IS
    'Each method''s NLL minus the base model''s on the same tokens, by band of positions; negative is better.';
COMMENT ON COLUMN nll_against_base.study IS 'Name of the study.';
COMMENT ON COLUMN nll_against_base.base_model IS 'Registered name of the base model.';
COMMENT ON COLUMN nll_against_base.method IS 'Label of the method.';
COMMENT ON COLUMN nll_against_base.frozen IS
    'Whether the method was applied without fine-tuning.';
COMMENT ON COLUMN nll_against_base.benchmark IS 'Registered name of the benchmark.';
COMMENT ON COLUMN nll_against_base.task IS 'Task of the benchmark.';
COMMENT ON COLUMN nll_against_base.eval_length IS 'Evaluated context in tokens.';
COMMENT ON COLUMN nll_against_base.band_start IS
    'First position of the band, in tokens: 0, or 1, 2, 4, ... times the trained context.';
COMMENT ON COLUMN nll_against_base.band_end IS 'First position after the band, in tokens.';
COMMENT ON COLUMN nll_against_base.difference IS
    'Mean difference over the bins of the band, in nats per token; NULL if no bin has both values.';
COMMENT ON COLUMN nll_against_base.ci_low IS
    'Lower bound of its 95 % interval, by bootstrap over bins of positions: for other tokens of this text, not for other texts. NULL with one bin.';
COMMENT ON COLUMN nll_against_base.ci_high IS 'Upper bound of the interval.';
COMMENT ON COLUMN nll_against_base.num_bins IS 'Bins of positions in which both have a value.';
