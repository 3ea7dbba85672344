-- Comparisons of methods, with intervals and tests. Bootstraps and tests need more than SQL, so the
-- package catalog/comparisons fills the tables when the catalog is built. They have their own
-- schema, because schema `store` contains only what the studies computed.

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
    is_default BOOLEAN NOT NULL,
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
    generalises_to VARCHAR NOT NULL,
    explained_by VARCHAR,
    p_value DOUBLE NOT NULL,
    p_adjusted DOUBLE NOT NULL,
    checkpoints_p DOUBLE,
    checkpoints_low DOUBLE,
    checkpoints_high DOUBLE,
    family VARCHAR NOT NULL,
    rank BIGINT,
    blocked_by BIGINT,
    num_comparisons BIGINT NOT NULL,
    skewness DOUBLE NOT NULL,
    num_clusters BIGINT NOT NULL,
    num_samples BIGINT NOT NULL,
    num_seeds BIGINT NOT NULL,
    num_better BIGINT NOT NULL,
    num_worse BIGINT NOT NULL,
    smallest_detectable DOUBLE,
    num_needed BIGINT,
    look BIGINT,
    look_seeds BIGINT,
    level DOUBLE NOT NULL
);
COMMENT ON TABLE compared.paired_difference IS
    'Differences between two methods on the same prompts, each pair once; the base model is always second.';

CREATE TABLE compared.margin (
    study VARCHAR NOT NULL,
    base_model VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    profile VARCHAR,
    eval_length BIGINT NOT NULL,
    metric VARCHAR,
    method VARCHAR NOT NULL,
    frozen BOOLEAN NOT NULL,
    other_method VARCHAR NOT NULL,
    other_frozen BOOLEAN NOT NULL,
    expected VARCHAR NOT NULL,
    margin DOUBLE NOT NULL,
    outcome VARCHAR NOT NULL,
    num_needed BIGINT
);
COMMENT ON TABLE compared.margin IS
    'Predictions with a margin: outcome, and number of training seeds or documents that would decide it.';

CREATE MACRO compared.direction(difference, higher_is_better) AS
    CASE WHEN (difference > 0) = higher_is_better THEN 'better' ELSE 'worse' END;

-- Bound of other_value minus value, from that of value minus other_value. Bounds of perplexities are
-- other_value * (ratio - 1), so that they say the same of both methods only after this conversion.
CREATE MACRO compared.mirrored(bound, value, other_value, unit) AS
    0 - bound * CASE WHEN unit = 'perplexity' THEN value / (other_value + bound) ELSE 1 END;

CREATE VIEW compared.either_way AS
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
        compared.mirrored(ci_high, value, other_value, unit) AS ci_low,
        compared.mirrored(ci_low, value, other_value, unit) AS ci_high,
        compared.mirrored(checkpoints_high, value, other_value, unit) AS checkpoints_low,
        compared.mirrored(checkpoints_low, value, other_value, unit) AS checkpoints_high,
        smallest_detectable * CASE WHEN unit = 'perplexity' THEN value / other_value ELSE 1 END
            AS smallest_detectable,
        0 - skewness AS skewness,
        0 - highest AS lowest,
        0 - lowest AS highest
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
    p_adjusted,
    CASE
        WHEN num_better + num_worse = 0 THEN 'the same'
        WHEN p_adjusted <= 0.05 THEN compared.direction(difference, higher_is_better)
        WHEN ci_low IS NULL OR smallest_detectable IS NULL THEN 'too few'
        ELSE 'undecided'
    END AS verdict,
    smallest_detectable,
    num_needed,
    generalises_to,
    family,
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
    is_default,
    unit,
    higher_is_better,
    exact_attention,
    other_exact_attention,
    tasks,
    profile,
    look,
    look_seeds,
    level,
    rank,
    blocked_by,
    skewness,
    CASE
        WHEN checkpoints_p <= 0.05 THEN compared.direction(difference, higher_is_better)
        WHEN checkpoints_p IS NOT NULL THEN 'undecided'
    END AS verdict_on_checkpoints,
    checkpoints_p,
    checkpoints_low,
    checkpoints_high,
    task IS NULL
    OR NOT bool_or(task IS NULL) OVER (PARTITION BY study, base_model, benchmark) AS is_all_tasks,
    variant_name(method, frozen) AS variant,
    variant_name(other_method, other_frozen) AS other_variant,
    CASE WHEN p_adjusted <= 0.05 THEN explained_by END AS explained_by
FROM both_ways;

CREATE VIEW paired_difference AS
SELECT * EXCLUDE (is_default) FROM compared.either_way WHERE is_default
ORDER BY study, base_model, benchmark, eval_length, tasks, method, frozen, other_method, other_frozen;

COMMENT ON VIEW paired_difference IS
    'Differences between two methods on the same prompts, over all tasks of a benchmark that both have. Single tasks are compared with the base model only. Each pair has two rows.';
COMMENT ON COLUMN paired_difference.other_method IS
    'Label of the method with which the first one is compared.';
COMMENT ON COLUMN paired_difference.other_frozen IS
    'True if the other method is applied without fine-tuning, false if the model was fine-tuned with it.';
COMMENT ON COLUMN paired_difference.task IS
    'Name of the task within the benchmark; NULL for the mean over several tasks.';
COMMENT ON COLUMN paired_difference.is_all_tasks IS
    'True for the comparison over all tasks of the benchmark that both methods have; false for a single one of several tasks.';
COMMENT ON COLUMN paired_difference.difference IS
    'value minus other_value: difference of the two methods'' means, in the unit.';
COMMENT ON COLUMN paired_difference.ci_low IS
    'Lower bound of the 95 % interval of the difference. In the families primary and short context all intervals of an entry hold together in 95 % of studies; an exploratory interval holds alone. NULL with too few documents or prompts, or if the methods have equal scores.';
COMMENT ON COLUMN paired_difference.ci_high IS
    'Upper bound of the 95 % interval of the difference, like ci_low.';
COMMENT ON COLUMN paired_difference.p_value IS
    'Two-sided p-value of this comparison alone, for the hypothesis of no difference.';
COMMENT ON COLUMN paired_difference.p_adjusted IS
    'P-value after the correction for looks (p_value * 0.05 / level) and for the family: over documents a joint test of all comparisons of an entry by sign flips (Westfall and Young), over training seeds Holm''s, for exploratory ones Benjamini and Hochberg''s q. In the family primary it is at least that of the first undecided entry before.';
COMMENT ON COLUMN paired_difference.verdict IS
    'better or worse (p_adjusted up to 0.05), the same (equal on every document), too few (the seeds, documents or prompts could not decide even the largest possible difference) or undecided.';
COMMENT ON COLUMN paired_difference.explained_by IS
    'Controls that explain a difference (verdict better or worse): no_context, local_context or both. On the control prompts the methods differ significantly in the same direction (p up to 0.05, uncorrected), and the 95 % interval of the paired difference of score minus control score reaches 0. NULL if no control explains it or none was measured.';
COMMENT ON COLUMN paired_difference.verdict_on_checkpoints IS
    'Verdict of the second test, for other prompts on these checkpoints; NULL unless generalises_to is training seeds.';
COMMENT ON COLUMN paired_difference.checkpoints_p IS
    'P-value of the second test, corrected like p_adjusted; NULL unless generalises_to is training seeds.';
COMMENT ON COLUMN paired_difference.checkpoints_low IS
    'Lower bound of the 95 % interval of the second test.';
COMMENT ON COLUMN paired_difference.checkpoints_high IS
    'Upper bound of the 95 % interval of the second test.';
COMMENT ON COLUMN paired_difference.smallest_detectable IS
    'Smallest true difference that the test detects with 80 % power at the level of its interval; NULL if none up to an accuracy of 1 or twice the perplexity is detectable, or all differences are 0.';
COMMENT ON COLUMN paired_difference.num_needed IS
    'For an undecided comparison: the number of training seeds (if generalises_to is training seeds) or else of independent documents or prompts with which the test detects a true difference of this size with 80 % power. NULL for other comparisons, above 10,000, or if the spread is unknown.';
COMMENT ON COLUMN paired_difference.family IS
    'Set of comparisons that p_adjusted is corrected for: primary (one registered entry of expects after the other), short context (those with the base model within its trained context, which every study makes) or exploratory (all others of the study and base model).';
COMMENT ON COLUMN paired_difference.rank IS
    'Index of the registered entry in the family primary, counted from 0; NULL in other families.';
COMMENT ON COLUMN paired_difference.blocked_by IS
    'Index of the undecided entry because of which this one is not tested; NULL if it is.';
COMMENT ON COLUMN paired_difference.skewness IS
    'Skewness of the documents'' differences. Beyond 1 with fewer than 40 documents the test finds too many false differences: with 16 documents in 18 % of simulated studies instead of 5 %.';
COMMENT ON COLUMN paired_difference.num_comparisons IS
    'Number of comparisons that are corrected together and differ in their scores.';
COMMENT ON COLUMN paired_difference.num_clusters IS
    'Number of independent observations: all samples of one document, or of one prompt in all seeds, count as one.';
COMMENT ON COLUMN paired_difference.num_samples IS
    'Number of scored prompts or text windows of each method, over all seeds.';
COMMENT ON COLUMN paired_difference.num_seeds IS
    'Number of common training runs; seeds with the same checkpoints count as one.';
COMMENT ON COLUMN paired_difference.look IS
    'Number of the look that tests the comparison, counted from 1: the last one whose seeds are done for both methods, or the look that settled it. NULL if the study has no looks.';
COMMENT ON COLUMN paired_difference.look_seeds IS
    'Number of the study''s seeds at this look; NULL if the study has no looks.';
COMMENT ON COLUMN paired_difference.level IS
    'Significance level of this look: the part of 0.05 that it may spend; 0.05 if the study has no looks.';
COMMENT ON COLUMN paired_difference.lowest IS 'Difference in the seed in which it is lowest.';
COMMENT ON COLUMN paired_difference.highest IS 'Difference in the seed in which it is highest.';
COMMENT ON COLUMN paired_difference.num_better IS
    'Number of documents or prompts on which the method is better than the other.';
COMMENT ON COLUMN paired_difference.num_worse IS
    'Number of documents or prompts on which the method is worse than the other.';
COMMENT ON COLUMN paired_difference.value IS
    'Mean of the method over the tasks and seeds that both methods have; the geometric mean for perplexities.';
COMMENT ON COLUMN paired_difference.other_value IS
    'Mean of the other method over the tasks and seeds that both methods have; the geometric mean for perplexities.';
COMMENT ON COLUMN paired_difference.metric IS 'Default metric of the benchmark.';
COMMENT ON COLUMN paired_difference.unit IS
    'Unit of both values and their difference: accuracy (0 to 1), perplexity or nats.';
COMMENT ON COLUMN paired_difference.other_exact_attention IS
    'True if every token attends to all earlier tokens with the other method.';
COMMENT ON COLUMN paired_difference.tasks IS 'Tasks that both methods have, separated by commas.';
COMMENT ON COLUMN paired_difference.generalises_to IS
    'What p-value and interval generalise to: training seeds (and prompts, if all seeds answer the same ones); one training run (other prompts, for these weights only); or prompts, if neither method was trained.';

CREATE VIEW same_computation AS
SELECT study, base_model, method, frozen, other_method, other_frozen, variant, other_variant
FROM paired_difference
WHERE (method, frozen) < (other_method, other_frozen)
GROUP BY ALL
HAVING bool_and(verdict = 'the same') AND bool_or(unit IN ('perplexity', 'nats'))
ORDER BY ALL;

COMMENT ON VIEW same_computation IS
    'Pairs of variants that are the same computation under two names: equal in every comparison, one of which is on text. Equal accuracies alone prove nothing, because many methods answer every prompt.';
COMMENT ON COLUMN same_computation.other_method IS 'Label of the second method.';
COMMENT ON COLUMN same_computation.other_frozen IS
    'True if the second method is applied without fine-tuning, false if the model was fine-tuned with it.';

CREATE TABLE compared.prediction (
    study VARCHAR NOT NULL,
    base_model VARCHAR NOT NULL,
    benchmark VARCHAR NOT NULL,
    eval_length BIGINT NOT NULL,
    metric VARCHAR,
    among VARCHAR[],
    tau DOUBLE,
    ci_low DOUBLE,
    ci_high DOUBLE,
    p_adjusted DOUBLE,
    num_methods BIGINT NOT NULL,
    num_clusters BIGINT NOT NULL,
    outcome VARCHAR NOT NULL
);
COMMENT ON TABLE compared.prediction IS
    'Expectations that perplexity predicts a benchmark: Kendall''s tau over methods within each document, and its mean over documents.';

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
    p_adjusted DOUBLE
);
COMMENT ON TABLE compared.perplexity_agreement IS
    'Rank correlations of perplexity and downstream scores.';

CREATE VIEW perplexity_agreement AS FROM compared.perplexity_agreement ORDER BY rowid;

COMMENT ON VIEW perplexity_agreement IS
    'Rank correlation, over methods, of perplexity and downstream score (LCEG''s Figure 4), for all methods and for those with exact attention.';
COMMENT ON COLUMN perplexity_agreement.benchmark IS 'Registered name of the downstream benchmark.';
COMMENT ON COLUMN perplexity_agreement.methods IS
    'Methods that are compared: all, or exact attention. The latter exists only if some method approximates attention; such methods can have low perplexity without reading the context.';
COMMENT ON COLUMN perplexity_agreement.num_methods IS
    'Number of methods with both scores over the usual tasks; methods with equal scores count once.';
COMMENT ON COLUMN perplexity_agreement.spearman IS
    'Spearman''s rank correlation, positive if methods with lower perplexity have higher downstream scores; NULL if all perplexities or all scores are equal.';
COMMENT ON COLUMN perplexity_agreement.spearman_low IS
    'Lower bound of the approximate 95 % interval of spearman over families of methods; NULL with fewer than five methods or four families.';
COMMENT ON COLUMN perplexity_agreement.spearman_high IS
    'Upper bound of the approximate 95 % interval of spearman over families of methods; NULL with fewer than five methods or four families.';
COMMENT ON COLUMN perplexity_agreement.kendall IS
    'Kendall''s tau-b, positive if methods with lower perplexity have higher downstream scores; NULL if all perplexities or all scores are equal.';
COMMENT ON COLUMN perplexity_agreement.kendall_low IS
    'Lower bound of the approximate 95 % interval of kendall over families of methods; NULL with fewer than five methods or four families.';
COMMENT ON COLUMN perplexity_agreement.kendall_high IS
    'Upper bound of the approximate 95 % interval of kendall over families of methods; NULL with fewer than five methods or four families.';
COMMENT ON COLUMN perplexity_agreement.p_value IS
    'Two-sided p-value, for the hypothesis of unrelated orders, by Kendall''s test or, if larger, a jackknife over families of methods; NULL if all perplexities or all scores are equal, or with fewer than four families.';
COMMENT ON COLUMN perplexity_agreement.p_adjusted IS
    'P-value after Holm''s correction for all rows of the study and base model.';

CREATE VIEW registrations AS
SELECT DISTINCT study, version, registered_at, results_before, hypothesis, looks, sha256
FROM history.registration
ORDER BY study, version;

COMMENT ON VIEW registrations IS
    'Versions of a study''s hypothesis and expectations (`expects`). A run registers each new version before it computes anything.';
COMMENT ON COLUMN registrations.version IS 'Number of the version, counted from 1.';
COMMENT ON COLUMN registrations.registered_at IS 'Time at which a run first saw this version (UTC).';
COMMENT ON COLUMN registrations.results_before IS
    'Number of the study''s cells that were done at that time: 0 if the version was written before any result.';
COMMENT ON COLUMN registrations.hypothesis IS
    'Hypothesis of this version; NULL if the study states none.';
COMMENT ON COLUMN registrations.looks IS
    'Numbers of seeds after which the study tests the comparisons; NULL if it tests them only after all seeds.';
COMMENT ON COLUMN registrations.sha256 IS 'Digest of hypothesis, expectations and looks.';

-- What an expectation says, without its words and its place in the order.
CREATE MACRO compared.identity(e) AS row(
    e.study, e.base_model, e.benchmark, e.eval_length, e.metric, e.method, e.frozen, e.other_method,
    e.other_frozen, e.expected, e.margin, e.among
);

CREATE VIEW expectations AS
WITH known AS (
    SELECT *, compared.identity(h) AS identity FROM history.registration h WHERE expected IS NOT NULL
),
versions AS (SELECT DISTINCT study, version, results_before FROM history.registration),
registered AS (
    -- The design that counts: the last version that was registered before the first result.
    SELECT known.*
    FROM known
    JOIN (SELECT study, max(version) AS version FROM versions WHERE results_before = 0 GROUP BY study)
    USING (study, version)
),
seen AS (
    SELECT
        identity, looks, min(registered_at) AS registered_at,
        min_by(results_before, version) AS results_before, max(version) AS last_version
    FROM known
    GROUP BY ALL
),
planned AS (SELECT *, compared.identity(e) AS identity, rowid AS position FROM store.expectation e),
listed AS (
    FROM planned
    UNION ALL BY NAME
    -- A withdrawn expectation stays in its family and in every list.
    SELECT
        r.* EXCLUDE (version, registered_at, sha256, results_before, hypothesis, looks),
        1000000 + row_number() OVER (ORDER BY r.entry) AS position,
        coalesce(v.results_before, 0) AS withdrawn_after
    FROM registered r
    JOIN seen USING (identity)
    LEFT JOIN versions v ON v.study = r.study AND v.version = seen.last_version + 1
    WHERE r.study IN (SELECT study FROM store.study)
        AND r.identity NOT IN (SELECT identity FROM planned)
)
SELECT
    e.study,
    e.entry,
    e.text,
    e.claim,
    e.base_model,
    e.method,
    e.frozen,
    e.expected,
    e.margin,
    e.other_method,
    e.other_frozen,
    e.benchmark,
    e.eval_length,
    CASE
        WHEN l.settled_as IS NOT NULL THEN l.settled_as
        WHEN e.expected = 'predicts' THEN coalesce(o.agreement, 'not measured')
        WHEN d.verdict IS NULL THEN 'not measured'
        WHEN d.generalises_to = 'one training run'
            AND (d.verdict IN ('better', 'worse', 'the same') OR m.margin_outcome <> 'undecided')
            THEN 'on one training run'
        WHEN e.margin IS NOT NULL AND m.margin_outcome <> 'undecided' THEN m.margin_outcome
        WHEN d.verdict = 'too few' THEN 'too few'
        WHEN e.margin IS NOT NULL THEN 'undecided'
        WHEN d.verdict = e.expected THEN 'confirmed'
        WHEN d.verdict IN ('better', 'worse') THEN 'contradicted'
        ELSE 'undecided'
    END AS outcome,
    coalesce(d.difference, o.tau) AS difference,
    coalesce(d.ci_low, o.ci_low) AS ci_low,
    coalesce(d.ci_high, o.ci_high) AS ci_high,
    d.other_value,
    coalesce(d.p_adjusted, o.p_adjusted) AS p_adjusted,
    d.verdict,
    d.verdict_on_checkpoints,
    d.tasks,
    d.family,
    coalesce(e.metric, d.metric) AS metric,
    d.unit = 'perplexity' AS is_ratio,
    d.generalises_to,
    CASE
        WHEN outcome <> 'undecided' THEN NULL
        WHEN e.margin IS NULL THEN d.num_needed
        ELSE m.num_needed
    END AS num_needed,
    r.entry AS rank,
    r.weight,
    d.blocked_by,
    r.study IS NOT NULL AS is_registered,
    e.withdrawn_after,
    e.among,
    f.registered_at,
    f.results_before,
    d.look,
    d.level,
    d.look_seeds AS num_seeds,
    l.num_seeds AS settled_seeds,
    l.tested_at AS settled_at
FROM listed e
LEFT JOIN (SELECT DISTINCT study, looks FROM store.study) s ON s.study = e.study
LEFT JOIN registered r
    ON r.identity = e.identity AND r.looks IS NOT DISTINCT FROM s.looks
LEFT JOIN seen f ON f.identity = e.identity AND f.looks IS NOT DISTINCT FROM s.looks
LEFT JOIN (
    SELECT * EXCLUDE (outcome), outcome AS settled_as FROM history.look
    WHERE outcome NOT IN ('undecided', 'too few', 'not measured')
) l
    ON l.study = e.study AND l.base_model = e.base_model AND l.method = e.method
    AND l.frozen = e.frozen AND l.other_method = e.other_method
    AND l.other_frozen = e.other_frozen AND l.benchmark = e.benchmark
    AND l.eval_length = e.eval_length AND l.expected = e.expected
    AND l.margin IS NOT DISTINCT FROM e.margin AND l.metric IS NOT DISTINCT FROM e.metric
LEFT JOIN compared.either_way d
    ON d.study = e.study AND d.base_model = e.base_model AND d.method = e.method
    AND d.frozen = e.frozen AND d.other_method = e.other_method
    AND d.other_frozen = e.other_frozen AND d.benchmark = e.benchmark
    AND d.eval_length = e.eval_length
    AND CASE WHEN e.metric IS NULL THEN d.is_default ELSE d.metric = e.metric END
LEFT JOIN (SELECT DISTINCT * RENAME (outcome AS margin_outcome) FROM compared.margin) m
    ON m.study = d.study AND m.base_model = d.base_model AND m.benchmark = d.benchmark
    AND m.profile IS NOT DISTINCT FROM d.profile AND m.eval_length = d.eval_length
    AND m.metric IS NOT DISTINCT FROM d.metric
    AND m.method = d.method AND m.frozen = d.frozen AND m.other_method = d.other_method
    AND m.other_frozen = d.other_frozen AND m.expected = e.expected AND m.margin = e.margin
LEFT JOIN (SELECT * RENAME (outcome AS agreement) FROM compared.prediction) o
    ON e.expected = 'predicts' AND o.study = e.study AND o.base_model = e.base_model
    AND o.benchmark = e.benchmark AND o.eval_length = e.eval_length
    AND o.metric IS NOT DISTINCT FROM e.metric AND o.among IS NOT DISTINCT FROM e.among
-- Several tasks count as their mean; the comparisons of single tasks with the base model do not.
QUALIFY d.tasks IS NULL OR len(string_split(d.tasks, ', ')) = max(len(string_split(d.tasks, ', ')))
    OVER (PARTITION BY e.study, e.position, d.profile)
ORDER BY e.position;

CREATE VIEW amendments AS FROM history.amendment ORDER BY study, amended_at, change;

COMMENT ON VIEW amendments IS
    'Changes of a study''s design after its first result: seeds, methods, benchmarks, lengths, numbers of samples and expectations that were added or dropped.';
COMMENT ON COLUMN amendments.amended_at IS
    'Time at which a run first saw the changed study (UTC).';
COMMENT ON COLUMN amendments.results_before IS
    'Number of the study''s cells that were done at that time.';
COMMENT ON COLUMN amendments.change IS 'Change in words.';

CREATE VIEW claims AS
SELECT
    claim,
    study,
    base_model,
    count(*) AS num_comparisons,
    count(*) FILTER (outcome = 'confirmed') AS num_confirmed,
    count(*) FILTER (outcome = 'contradicted') AS num_contradicted,
    count(*) FILTER (outcome = 'on one training run') AS num_on_one_run,
    count(*) FILTER (outcome IN ('undecided', 'too few')) AS num_undecided,
    count(*) FILTER (outcome = 'not measured') AS num_not_measured
FROM expectations
WHERE claim IS NOT NULL
GROUP BY ALL
ORDER BY claim, study, base_model;

COMMENT ON VIEW claims IS
    'Published claims that studies test (`claim` of an entry of `expects`), with the number of comparisons by outcome.';
COMMENT ON COLUMN claims.claim IS 'Claim in words, as the study files write it.';
COMMENT ON COLUMN claims.num_comparisons IS
    'Number of comparisons with which the study tests the claim; the other counts add up to it.';
COMMENT ON COLUMN claims.num_confirmed IS 'Number of comparisons with the outcome confirmed.';
COMMENT ON COLUMN claims.num_contradicted IS
    'Number of comparisons with the outcome contradicted.';
COMMENT ON COLUMN claims.num_on_one_run IS
    'Number of comparisons that were decided on one training run only: no finding about the methods.';
COMMENT ON COLUMN claims.num_undecided IS
    'Number of comparisons with the outcome undecided or too few.';
COMMENT ON COLUMN claims.num_not_measured IS
    'Number of comparisons with the outcome not measured.';

COMMENT ON VIEW expectations IS
    'Comparisons that a study''s `expects` predicts, and the comparisons with the base model within its trained context that every study makes, each with its measured difference and outcome.';
COMMENT ON COLUMN expectations.entry IS
    'Index of the entry in `expects`, counted from 0; NULL for the comparisons that every study makes.';
COMMENT ON COLUMN expectations.text IS 'Expectation in words.';
COMMENT ON COLUMN expectations.claim IS
    'Published claim that the expectation tests; NULL if the study names none.';
COMMENT ON COLUMN expectations.expected IS
    'What is expected of the method: better or worse than the other, not worse by more than the margin, or equal within the margin. predicts means that perplexity orders the methods as the benchmark does ; the columns of methods are then NULL, and difference is the mean of Kendall''s tau over documents.';
COMMENT ON COLUMN expectations.margin IS
    'Margin in the unit of the difference, or as a fraction of the other method''s perplexity; NULL for better, worse and predicts.';
COMMENT ON COLUMN expectations.other_method IS
    'Label of the method with which the first one is compared.';
COMMENT ON COLUMN expectations.other_frozen IS
    'True if the other method is applied without fine-tuning, false if the model was fine-tuned with it.';
COMMENT ON COLUMN expectations.outcome IS
    'confirmed or contradicted: for better and worse by the verdict, with a margin if the interval lies within or beyond it. on one training run: decided, but only for these weights. too few: no difference could have been decided. Otherwise undecided, or not measured.';
COMMENT ON COLUMN expectations.difference IS
    'Mean of the method minus mean of the other, as in paired_difference; NULL if not measured.';
COMMENT ON COLUMN expectations.ci_low IS
    'Lower bound of the difference''s 95 % interval, as in paired_difference.';
COMMENT ON COLUMN expectations.ci_high IS
    'Upper bound of the difference''s 95 % interval, as in paired_difference.';
COMMENT ON COLUMN expectations.other_value IS
    'Mean of the other method, as in paired_difference; NULL if not measured.';
COMMENT ON COLUMN expectations.p_adjusted IS
    'P-value as in paired_difference; NULL if not measured.';
COMMENT ON COLUMN expectations.verdict IS
    'Verdict of the comparison, as in paired_difference; NULL if not measured.';
COMMENT ON COLUMN expectations.tasks IS
    'Tasks that both methods have, separated by commas; NULL if not measured.';
COMMENT ON COLUMN expectations.family IS
    'Comparisons that p_adjusted is corrected for, as in paired_difference; NULL if not measured.';
COMMENT ON COLUMN expectations.is_ratio IS
    'True if the margin is a fraction of the other method''s score; NULL if not measured.';
COMMENT ON COLUMN expectations.generalises_to IS
    'What the comparison generalises to, as in paired_difference; NULL if not measured.';
COMMENT ON COLUMN expectations.num_needed IS
    'For the outcome undecided: the number of training seeds or documents (see generalises_to) that would decide the expectation with 80 % power if the true difference equals the measured one. NULL for other outcomes, above 10,000, or if the spread is unknown.';
COMMENT ON COLUMN expectations.metric IS
    'Metric of the benchmark that is compared; NULL if not measured.';
COMMENT ON COLUMN expectations.rank IS
    'Index of the entry in the registered order, counted from 0; NULL for amendments and for the comparisons that every study makes.';
COMMENT ON COLUMN expectations.weight IS
    'Share of 0.05 with which the entry is tested; NULL in a fixed sequence.';
COMMENT ON COLUMN expectations.blocked_by IS
    'Index of the undecided entry because of which this one is not tested; NULL if it is.';
COMMENT ON COLUMN expectations.is_registered IS
    'True if the expectation was registered before the study''s first result; others are exploratory.';
COMMENT ON COLUMN expectations.withdrawn_after IS
    'Number of the study''s results when the expectation was removed from the study file; NULL if it is there.';
COMMENT ON COLUMN expectations.among IS
    'Variants over which perplexity predicts the benchmark; NULL for all with exact attention.';
COMMENT ON COLUMN expectations.verdict_on_checkpoints IS
    'Verdict for other prompts on these checkpoints, as in paired_difference.';
COMMENT ON COLUMN expectations.registered_at IS
    'Time at which a run first saw this expectation (UTC); NULL if unknown.';
COMMENT ON COLUMN expectations.results_before IS
    'Number of the study''s cells that were done at that time; NULL if unknown.';
COMMENT ON COLUMN expectations.look IS 'Number of the look, as in paired_difference.';
COMMENT ON COLUMN expectations.level IS 'Level of the look, as in paired_difference.';
COMMENT ON COLUMN expectations.num_seeds IS
    'Number of the study''s seeds at the look; NULL if the study has no looks.';
COMMENT ON COLUMN expectations.settled_seeds IS
    'Number of seeds of the look that settled the comparison, so that later seeds do not change its outcome; NULL if no look has.';
COMMENT ON COLUMN expectations.settled_at IS
    'Time of the look that settled the comparison (UTC); NULL if no look has.';

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
    rule VARCHAR NOT NULL,
    threshold DOUBLE NOT NULL,
    unit VARCHAR,
    higher_is_better BOOLEAN NOT NULL,
    exact_attention BOOLEAN NOT NULL,
    profile VARCHAR
);
COMMENT ON TABLE compared.effective_length IS 'Longest context lengths that methods use.';

CREATE VIEW effective_length AS FROM compared.effective_length ORDER BY rowid;

COMMENT ON VIEW effective_length IS
    'Longest context length up to which each method reaches a threshold, for three definitions of the threshold (column rule).';
COMMENT ON COLUMN effective_length.rule IS
    'kept: 90 % of the base model''s accuracy, or 110 % of its perplexity, at the longest evaluated length within its trained context. ruler: an accuracy of 0.856, as in RULER. nolima: 85 % of the method''s own highest accuracy within the trained context, as in NoLiMa.';
COMMENT ON COLUMN effective_length.tokens IS
    'Longest evaluated length in tokens up to which the mean over seeds reaches the threshold at every length; 0 if none.';
COMMENT ON COLUMN effective_length.ci_low IS
    'Lower bound of the 95 % interval of tokens: an evaluated length or 0.';
COMMENT ON COLUMN effective_length.ci_high IS
    'Upper bound of the 95 % interval of tokens: an evaluated length or 0. If it is the longest one, the true length may be longer.';
COMMENT ON COLUMN effective_length.longest IS
    'Longest length in tokens that is done together with all shorter ones.';
COMMENT ON COLUMN effective_length.num_lengths IS
    'Number of evaluated lengths up to the column longest.';
COMMENT ON COLUMN effective_length.num_seeds IS 'Number of seeds behind the means.';
COMMENT ON COLUMN effective_length.threshold IS
    'Score that the method must reach by this rule.';
COMMENT ON COLUMN effective_length.unit IS
    'Unit of the threshold: accuracy (0 to 1), perplexity or nats.';
COMMENT ON COLUMN effective_length.higher_is_better IS
    'True if the threshold is a minimum (accuracy), false if it is a maximum (perplexity).';

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
JOIN benchmark_by_length p USING (study, base_model, method, frozen, eval_length)
WHERE p.unit = 'perplexity' AND d.higher_is_better
    AND p.value IS NOT NULL AND d.value IS NOT NULL AND p.has_usual_tasks AND d.has_usual_tasks
-- The alphabetically first benchmark with perplexities, such as `perplexity`.
QUALIFY p.benchmark = min(p.benchmark) OVER (PARTITION BY d.study, d.base_model, d.eval_length)
ORDER BY d.study, d.base_model, d.eval_length, d.benchmark, d.method, d.frozen;

COMMENT ON VIEW perplexity_vs_downstream IS
    'Perplexity and downstream score of each method at the same length: the points behind perplexity_agreement.';
COMMENT ON COLUMN perplexity_vs_downstream.perplexity IS
    'Mean over tasks and seeds of the alphabetically first benchmark that measures perplexity at this length; lower is better.';
COMMENT ON COLUMN perplexity_vs_downstream.benchmark IS
    'Registered name of the downstream benchmark.';
COMMENT ON COLUMN perplexity_vs_downstream.value IS
    'Mean downstream score over tasks and seeds; higher is better.';

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
    'Differences in NLL from the base model, by band of token positions.';

CREATE VIEW nll_against_base AS FROM compared.nll_difference ORDER BY rowid;

COMMENT ON VIEW nll_against_base IS
    'Difference of each method''s negative log-likelihood (NLL) from the base model''s on the same tokens, by band of token positions; negative is better.';
COMMENT ON COLUMN nll_against_base.band_start IS
    'First token position of the band, counted from 0: either 0, or 1, 2, 4, ... times the trained context.';
COMMENT ON COLUMN nll_against_base.band_end IS 'First token position after the band.';
COMMENT ON COLUMN nll_against_base.difference IS
    'Mean difference over the bins of the band, in nats per token; NULL if no bin has both values.';
COMMENT ON COLUMN nll_against_base.ci_low IS
    'Lower bound of the difference''s 95 % interval, by bootstrap over bins: for other tokens of this text, not for other texts. NULL with one bin.';
COMMENT ON COLUMN nll_against_base.ci_high IS
    'Upper bound of the difference''s 95 % interval, by bootstrap over bins: for other tokens of this text, not for other texts. NULL with one bin.';
COMMENT ON COLUMN nll_against_base.num_bins IS
    'Number of bins of positions in which both have a value.';

CREATE TABLE compared.retrieval_by_depth (
    study VARCHAR NOT NULL,
    base_model VARCHAR NOT NULL,
    method VARCHAR NOT NULL,
    frozen BOOLEAN NOT NULL,
    benchmark VARCHAR NOT NULL,
    task VARCHAR NOT NULL,
    profile VARCHAR,
    eval_length BIGINT NOT NULL,
    depth_from BIGINT NOT NULL,
    distance DOUBLE NOT NULL,
    accuracy DOUBLE NOT NULL,
    accuracy_low DOUBLE,
    accuracy_high DOUBLE,
    margin DOUBLE NOT NULL,
    margin_low DOUBLE,
    margin_high DOUBLE,
    num_samples BIGINT NOT NULL,
    num_clusters BIGINT NOT NULL,
    num_seeds BIGINT NOT NULL
);
COMMENT ON TABLE compared.retrieval_by_depth IS
    'Accuracy and margin of key retrieval by depth and distance.';

CREATE VIEW retrieval_by_depth AS FROM compared.retrieval_by_depth ORDER BY rowid;

COMMENT ON VIEW retrieval_by_depth IS
    'Accuracy and margin with which each method retrieves keys, by depth and distance of the key, over all done seeds. For benchmarks that compare the right key with absent keys (multi_key).';
COMMENT ON COLUMN retrieval_by_depth.depth_from IS
    'First depth of the bin, in per cent of the context; a bin is 20 % wide.';
COMMENT ON COLUMN retrieval_by_depth.distance IS
    'Mean number of tokens between the key and the answer.';
COMMENT ON COLUMN retrieval_by_depth.accuracy IS
    'Fraction of questions whose greedy answer is the right key.';
COMMENT ON COLUMN retrieval_by_depth.accuracy_low IS
    'Lower bound of the accuracy''s 95 % interval over documents; NULL below six documents.';
COMMENT ON COLUMN retrieval_by_depth.accuracy_high IS
    'Upper bound of the accuracy''s 95 % interval over documents; NULL below six documents.';
COMMENT ON COLUMN retrieval_by_depth.margin IS
    'Mean log-probability of the right key minus that of absent keys, in nats; 0 means that the text does not help.';
COMMENT ON COLUMN retrieval_by_depth.margin_low IS
    'Lower bound of the margin''s 95 % interval over documents; NULL below six documents.';
COMMENT ON COLUMN retrieval_by_depth.margin_high IS
    'Upper bound of the margin''s 95 % interval over documents; NULL below six documents.';
COMMENT ON COLUMN retrieval_by_depth.num_samples IS 'Number of questions in the bin.';
COMMENT ON COLUMN retrieval_by_depth.num_clusters IS 'Number of documents that the questions are about.';

CREATE TABLE compared.paper_agreement (
    study VARCHAR NOT NULL,
    base_model VARCHAR NOT NULL,
    paper VARCHAR NOT NULL,
    place VARCHAR NOT NULL,
    benchmark VARCHAR,
    task VARCHAR,
    eval_length BIGINT,
    num_columns BIGINT NOT NULL,
    num_methods BIGINT NOT NULL,
    spearman DOUBLE,
    spearman_low DOUBLE,
    spearman_high DOUBLE,
    kendall DOUBLE,
    kendall_low DOUBLE,
    kendall_high DOUBLE
);
COMMENT ON TABLE compared.paper_agreement IS
    'Rank correlations of our scores and printed ones.';

CREATE VIEW paper_agreement AS
FROM compared.paper_agreement
ORDER BY study, base_model, paper, place, num_columns DESC, benchmark, task, eval_length;

COMMENT ON VIEW paper_agreement IS
    'Rank correlation of our order of methods with the paper''s, for each column of a printed table with at least three methods, and for the whole table.';
COMMENT ON COLUMN paper_agreement.place IS 'Table of the paper.';
COMMENT ON COLUMN paper_agreement.benchmark IS
    'Registered name of the benchmark; NULL for the whole table.';
COMMENT ON COLUMN paper_agreement.task IS
    'Name of the task within the benchmark, or average; NULL for the whole table.';
COMMENT ON COLUMN paper_agreement.eval_length IS
    'Context length of the evaluation in tokens; NULL for a mean over lengths and for the whole table.';
COMMENT ON COLUMN paper_agreement.num_columns IS
    'Number of columns: 1 for a single column. For the whole table, all columns with at least three methods; each method''s ranks are averaged over them.';
COMMENT ON COLUMN paper_agreement.num_methods IS
    'Number of methods with both scores; for the whole table, with both scores in each of its columns.';
COMMENT ON COLUMN paper_agreement.spearman IS
    'Spearman''s rank correlation of our order and the paper''s; NULL if all our scores or all printed ones are equal.';
COMMENT ON COLUMN paper_agreement.spearman_low IS
    'Lower bound of the approximate 95 % interval of spearman over methods; NULL with fewer than five methods.';
COMMENT ON COLUMN paper_agreement.spearman_high IS
    'Upper bound of the approximate 95 % interval of spearman over methods; NULL with fewer than five methods.';
COMMENT ON COLUMN paper_agreement.kendall IS
    'Kendall''s tau-b of our order and the paper''s; NULL if all our scores or all printed ones are equal.';
COMMENT ON COLUMN paper_agreement.kendall_low IS
    'Lower bound of the approximate 95 % interval of kendall over methods; NULL with fewer than five methods.';
COMMENT ON COLUMN paper_agreement.kendall_high IS
    'Upper bound of the approximate 95 % interval of kendall over methods; NULL with fewer than five methods.';
