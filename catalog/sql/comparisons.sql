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
    is_all_tasks BOOLEAN NOT NULL,
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
    is_all_tasks,
    variant_name(method, frozen) AS variant,
    variant_name(other_method, other_frozen) AS other_variant,
    CASE WHEN p_adjusted <= 0.05 THEN explained_by END AS explained_by
FROM both_ways;

CREATE VIEW paired_difference AS
SELECT * EXCLUDE (is_default) FROM compared.either_way WHERE is_default
ORDER BY study, base_model, benchmark, eval_length, tasks, method, frozen, other_method, other_frozen;

COMMENT ON VIEW paired_difference IS
    'Differences between two methods on the same prompts, over all tasks of a benchmark that both have. Single tasks are compared with the base model only. Each pair has two rows.';

CREATE VIEW same_computation AS
SELECT study, base_model, method, frozen, other_method, other_frozen, variant, other_variant
FROM paired_difference
WHERE (method, frozen) < (other_method, other_frozen)
GROUP BY ALL
HAVING bool_and(verdict = 'the same') AND bool_or(unit IN ('perplexity', 'nats'))
ORDER BY ALL;

COMMENT ON VIEW same_computation IS
    'Pairs of variants that are the same computation under two names: equal in every comparison, one of which is on text. Equal accuracies alone prove nothing, because many methods answer every prompt.';

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

CREATE VIEW perplexity_agreement AS FROM compared.perplexity_agreement ORDER BY rowid;

COMMENT ON VIEW perplexity_agreement IS
    'Rank correlation, over methods, of perplexity and downstream score (LCEG''s Figure 4), for all methods and for those with exact attention.';

CREATE VIEW registrations AS
SELECT DISTINCT study, version, registered_at, results_before, hypothesis, looks, sha256
FROM history.registration
ORDER BY study, version;

COMMENT ON VIEW registrations IS
    'Versions of a study''s hypothesis and expectations (`expects`). A run registers each new version before it computes anything.';

-- What an expectation says, without its words and its place in the order. An entry of `expects` and
-- a comparison that every study makes are two, also if both say the same.
CREATE MACRO compared.identity(e) AS row(
    e.study, e.base_model, e.benchmark, e.eval_length, e.metric, e.method, e.frozen, e.other_method,
    e.other_frozen, e.expected, e.margin, e.among, e.entry IS NULL
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
    JOIN seen ON seen.identity = r.identity AND seen.looks IS NOT DISTINCT FROM r.looks
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
            AND CASE WHEN e.margin IS NULL THEN d.verdict IN ('better', 'worse', 'the same')
                ELSE m.margin_outcome <> 'undecided' END
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
    AND d.eval_length = e.eval_length AND d.is_all_tasks
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
ORDER BY e.position;

CREATE VIEW amendments AS FROM history.amendment ORDER BY study, amended_at, change;

COMMENT ON VIEW amendments IS
    'Changes of a study''s design after its first result: seeds, methods, benchmarks, lengths, numbers of samples and expectations that were added or dropped.';

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

COMMENT ON VIEW expectations IS
    'Comparisons that a study''s `expects` predicts, and the comparisons with the base model within its trained context that every study makes, each with its measured difference and outcome.';

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

CREATE VIEW effective_length AS FROM compared.effective_length ORDER BY rowid;

COMMENT ON VIEW effective_length IS
    'Longest context length up to which each method reaches a threshold, for three definitions of the threshold (column rule).';

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

CREATE VIEW nll_against_base AS FROM compared.nll_difference ORDER BY rowid;

COMMENT ON VIEW nll_against_base IS
    'Difference of each method''s negative log-likelihood (NLL) from the base model''s on the same tokens, by band of token positions; negative is better.';

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

CREATE VIEW retrieval_by_depth AS FROM compared.retrieval_by_depth ORDER BY rowid;

COMMENT ON VIEW retrieval_by_depth IS
    'Accuracy and margin with which each method retrieves keys, by depth and distance of the key, over all done seeds. For benchmarks that compare the right key with absent keys (multi_key).';

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

CREATE VIEW paper_agreement AS
FROM compared.paper_agreement
ORDER BY study, base_model, paper, place, num_columns DESC, benchmark, task, eval_length;

COMMENT ON VIEW paper_agreement IS
    'Rank correlation of our order of methods with the paper''s, for each column of a printed table with at least three methods, and for the whole table.';

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

CREATE VIEW mean_over_seeds AS FROM compared.mean_over_seeds ORDER BY rowid;

COMMENT ON VIEW mean_over_seeds IS
    'Mean of each task at each length with an interval for other seeds and other prompts, if all seeds are done. The range of the seeds that ran is in score_by_length.';
