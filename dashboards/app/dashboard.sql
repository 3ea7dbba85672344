-- Queries of the live dashboard. It also uses those of `dashboards/report.sql` with other names.

-- name: all_studies
FROM studies

-- name: expectations
-- Comparisons that the study file predicts (entries count from 1), then those with the base model
-- within its trained context, with their outcomes.
SELECT
    base_model,
    entry + 1 AS entry,
    text,
    claim,
    benchmark,
    eval_length,
    variant_label(method, frozen) AS variant,
    variant_label(other_method, other_frozen) AS other_variant,
    outcome,
    difference,
    ci_low,
    ci_high,
    p_adjusted,
    family,
    num_needed,
    blocked_by + 1 AS blocked_by,
    withdrawn_after
FROM expectations
WHERE study = $study
ORDER BY entry, other_variant, eval_length

-- name: matrix
-- State of the cells of each method at each length of a benchmark. The CASE implements `group_state`
-- of lce_core/study/states.py.
WITH numbered AS (
    SELECT *, row_number() OVER () AS position FROM cells WHERE study = $study
),
counted AS (
    SELECT base_model, method, frozen, benchmark, eval_length,
        count(*) AS planned,
        count(*) FILTER (status = 'done') AS done,
        count(*) FILTER (status = 'failed') AS failed,
        count(*) FILTER (status = 'missing') AS missing,
        count(*) FILTER (status = 'unavailable') AS unavailable,
        coalesce(
            string_agg(DISTINCT status || ': ' || reason, '; ' ORDER BY status || ': ' || reason)
                FILTER (status <> 'done'),
            ''
        ) AS reasons,
        sum(seconds) AS seconds,
        min(position) AS position
    FROM numbered
    GROUP BY base_model, method, frozen, benchmark, eval_length
)
SELECT *,
    CASE
        WHEN failed > 0 THEN 'failed'
        WHEN unavailable = planned THEN 'unavailable'
        WHEN missing = 0 THEN 'done'
        WHEN done > 0 THEN 'in part'
        ELSE 'missing'
    END AS state
FROM counted
ORDER BY position

-- name: reasons
-- Cells without a result, grouped by reason.
SELECT base_model, status, reason,
    count(*) AS cells,
    string_agg(
        DISTINCT variant_label(method, frozen), ', '
        ORDER BY variant_label(method, frozen)
    ) AS methods,
    string_agg(DISTINCT benchmark, ', ' ORDER BY benchmark) AS benchmarks,
    array_to_string(list_sort(list(DISTINCT eval_length)), ', ') AS lengths
FROM missing_cells
WHERE study = $study
GROUP BY base_model, status, reason
ORDER BY status, cells DESC, reason

-- name: field
-- The cells of one method at one length of a benchmark.
SELECT base_model, task, seed, status, reason, attempts, seconds, cell
FROM cells
WHERE study = $study AND method = $method AND frozen = $frozen
    AND benchmark = $benchmark AND eval_length = $eval_length

-- name: cell_scores
-- Every planned cell with each of its scores; a cell that is not done has one row without a score.
WITH numbered AS (
    -- A cell that is not done has no family: take it from other cells of the method.
    SELECT * REPLACE (
            any_value(family) OVER (PARTITION BY base_model, method, frozen) AS family
        ), row_number() OVER () AS position
    FROM cells WHERE study = $study
)
SELECT c.base_model, c.method, c.frozen, coalesce(c.family, 'other') AS family, c.seed,
    c.benchmark, c.task, c.eval_length, c.train_length, c.cell, c.status,
    c.seconds, c.tokens, c.flops,
    s.metric, s.value, s.unit, s.higher_is_better, coalesce(s.is_default, false) AS is_default
FROM numbered c
LEFT JOIN scores s ON s.study = c.study AND s.cell = c.cell
ORDER BY c.position, s.is_default DESC, s.metric

-- name: means
-- Mean of each task with its 95 % interval, and whether its cells have answers to look at.
SELECT m.base_model, m.method, m.frozen, m.benchmark, m.task, m.eval_length, m.metric, m.value,
    m.ci_low, m.ci_high, m.num_seeds, m.num_documents,
    EXISTS (
        FROM cells c JOIN samples s USING (cell)
        WHERE c.study = m.study AND c.base_model = m.base_model AND c.benchmark = m.benchmark
            AND c.task = m.task AND s.prediction IS NOT NULL
    ) AS has_answers
FROM mean_over_seeds m
WHERE m.study = $study
ORDER BY m.benchmark, m.task, m.eval_length DESC,
    CASE WHEN m.higher_is_better THEN -m.value ELSE m.value END

-- name: answered
-- Benchmarks, tasks and lengths with answers, and whether their prompts vary the depth.
SELECT c.base_model, c.benchmark, c.task, c.eval_length,
    any_value(c.kind) AS kind,
    bool_or(s.depth IS NOT NULL) AS has_depth
FROM cells c
JOIN samples s USING (cell)
WHERE c.study = $study AND s.prediction IS NOT NULL
GROUP BY ALL
ORDER BY ALL

-- name: found
-- Mean score by depth, for cells whose seeds are all done.
SELECT p.base_model, p.method, p.frozen, p.eval_length, coalesce(s.depth, 0) AS depth,
    avg(s.score) AS value,
    count(*) AS num_samples
FROM score_by_length p
JOIN cells c USING (study, base_model, method, frozen, benchmark, task, eval_length)
JOIN samples s USING (cell)
WHERE p.study = $study AND p.benchmark = $benchmark AND p.task = $task AND p.value IS NOT NULL
GROUP BY ALL
ORDER BY ALL

-- name: answers
-- Answers of one method at one task and length, by seed.
SELECT c.base_model, c.seed, s.sample, s.depth, s.score, s.prediction, s.reference,
    s.num_prompt_tokens, s.cluster, c.cell
FROM cells c
JOIN samples s USING (cell)
WHERE c.study = $study AND c.method = $method AND c.frozen = $frozen
    AND c.benchmark = $benchmark AND c.task = $task AND c.eval_length = $eval_length
ORDER BY c.seed, s.sample

-- name: pairs
-- One method compared with every other method on the same prompts.
FROM paired_difference
WHERE study = $study AND method = $method AND frozen = $frozen

-- name: printed
-- Figures as the papers print them.
SELECT paper, place, paper_model, paper_method, method, frozen, paper_benchmark, task, eval_length,
    printed, unit, errata, note
FROM paper_scores

-- name: errata
FROM paper_errata

-- name: views
-- The catalog's views with their comments and columns.
SELECT v.view_name AS view, v.comment AS holds,
    list(c.column_name ORDER BY c.column_index) AS columns
FROM duckdb_views() v
JOIN duckdb_columns() c ON c.table_name = v.view_name AND c.schema_name = v.schema_name
    AND c.database_name = v.database_name
WHERE v.schema_name = 'main' AND NOT v.internal
GROUP BY ALL
ORDER BY ALL
