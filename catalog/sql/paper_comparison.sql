-- Our scores beside the papers'. A printed figure is the mean over one or several parts (a task at
-- a length). It has a row for each study that plans all its parts; our value is the mean over these
-- parts and all seeds, and NULL unless all cells are done.

CREATE VIEW paper_comparison AS
WITH part AS (
    SELECT
        s.id,
        unnest(string_split(coalesce(s.mean_tasks, s.task), ' ')) AS task,
        l.eval_length
    FROM papers.score s,
        unnest(
            string_split(coalesce(s.mean_lengths, s.eval_length::VARCHAR), ' ')::BIGINT[]
        ) AS l(eval_length)
    WHERE s.benchmark IS NOT NULL AND s.method IS NOT NULL
),
part_counts AS (
    SELECT id, count(*) AS num_parts FROM part GROUP BY id
),
ours AS (
    SELECT
        p.id,
        c.study,
        any_value(s.metric) AS metric,
        any_value(s.unit) AS unit,
        avg(s.value) AS mean,
        count(s.value) AS num_done,
        count(*) AS num_planned,
        count(DISTINCT c.seed) AS num_seeds,
        min(c.position) AS position
    FROM papers.score p
    JOIN part t USING (id)
    JOIN part_counts n USING (id)
    JOIN store.cell c
        ON c.base_model = p.base_model AND c.method = p.method AND c.frozen = p.frozen
        AND c.benchmark = p.benchmark AND c.profile = p.profile
        AND c.task = t.task AND c.eval_length = t.eval_length
        -- Studies may use one label for several targets, such as YaRN to 32k and to 128k.
        AND (p.target_context IS NULL OR c.target_context = p.target_context)
        AND (c.frozen OR p.train_length IS NULL OR c.train_length = p.train_length)
    LEFT JOIN store.score s
        ON s.cell = c.cell AND c.status = 'done'
        AND CASE WHEN p.metric IS NULL THEN s.is_default ELSE s.metric = p.metric END
    GROUP BY p.id, c.study, n.num_parts
    HAVING count(DISTINCT (c.task, c.eval_length)) = n.num_parts
),
beside AS (
    SELECT
        o.*,
        p.* EXCLUDE (id, metric, unit, value),
        if_complete(o.mean, o.num_done, o.num_planned) AS value,
        p.value * CASE p.unit WHEN 'percent' THEN 0.01 ELSE 1 END AS paper_value,
        p.unit <> 'perplexity' AS higher_is_better
    FROM ours o
    JOIN papers.score p USING (id)
),
compared AS (
    SELECT *, value - paper_value AS difference FROM beside
),
ranked AS (
    SELECT *,
        CASE WHEN difference IS NOT NULL
            THEN rank() OVER (one_column ORDER BY best_first(value, higher_is_better))
        END AS rank,
        CASE WHEN difference IS NOT NULL
            THEN rank() OVER (one_column ORDER BY best_first(paper_value, higher_is_better))
        END AS paper_rank
    FROM compared
    WINDOW one_column AS (
        PARTITION BY study, base_model, paper, place, benchmark, task, eval_length,
            difference IS NULL
    )
)
SELECT
    study,
    base_model,
    method,
    frozen,
    benchmark,
    task,
    eval_length,
    profile,
    paper,
    place,
    value,
    paper_value,
    difference,
    rank,
    paper_rank,
    higher_is_better,
    coalesce(unit, CASE WHEN higher_is_better THEN 'accuracy' ELSE 'perplexity' END) AS unit,
    metric,
    num_done,
    num_planned,
    num_seeds,
    paper_method,
    printed,
    errata,
    note,
    id
FROM ranked
ORDER BY study, paper, position, id;

COMMENT ON VIEW paper_comparison IS
    'Our score and the paper''s, if base model, method, fine-tuning, target context, training length, benchmark, profile, tasks and lengths are equal. One row per study and printed figure.';
COMMENT ON COLUMN paper_comparison.task IS 'Name of the task within the benchmark, or average.';
COMMENT ON COLUMN paper_comparison.eval_length IS
    'Context length of the evaluation in tokens; NULL for a mean over lengths.';
COMMENT ON COLUMN paper_comparison.place IS 'Table that prints the paper''s score.';
COMMENT ON COLUMN paper_comparison.value IS
    'Our mean over the same tasks and lengths and all seeds; NULL if a cell is not done.';
COMMENT ON COLUMN paper_comparison.paper_value IS
    'Printed score converted to our unit; NULL if no number is printed.';
COMMENT ON COLUMN paper_comparison.difference IS
    'Our value minus the paper''s; NULL if one is missing.';
COMMENT ON COLUMN paper_comparison.rank IS
    'Our method''s rank, 1 for the best, among the methods with both scores in this column of the table; NULL if a score is missing.';
COMMENT ON COLUMN paper_comparison.paper_rank IS
    'Rank of the paper''s score among the same methods, 1 for the best; NULL if a score is missing.';
COMMENT ON COLUMN paper_comparison.unit IS 'Unit of both scores: accuracy (0 to 1) or perplexity.';
COMMENT ON COLUMN paper_comparison.metric IS 'Metric of our score; NULL if no cell is done.';
COMMENT ON COLUMN paper_comparison.num_done IS
    'Number of our cells behind the value that are done.';
COMMENT ON COLUMN paper_comparison.num_planned IS
    'Number of our cells behind the value that are planned.';
COMMENT ON COLUMN paper_comparison.num_seeds IS 'Number of planned seeds.';
COMMENT ON COLUMN paper_comparison.printed IS 'Paper''s score as printed.';
COMMENT ON COLUMN paper_comparison.errata IS
    'Ids in paper_errata that concern the printed score, separated by spaces; NULL if none.';
COMMENT ON COLUMN paper_comparison.note IS
    'How to read the printed score; NULL if it needs no explanation.';
COMMENT ON COLUMN paper_comparison.id IS 'Id of the printed score in paper_scores.';

-- Rank agreement. Spearman's correlation gives ties their mean rank; Kendall's is tau-b. Intervals
-- use Fisher's z with the standard errors of Bonett and Wright (2000) for Spearman and of Fieller,
-- Hartley and Pearson (1957) for Kendall, and treat the methods as a sample. Perfect agreement has
-- an infinite z, so z is computed from a correlation bounded half a swap of neighbours away from 1
-- and -1.

CREATE VIEW paper_agreement AS
WITH figures AS (
    SELECT *,
        best_first(value, higher_is_better) AS x,
        best_first(paper_value, higher_is_better) AS y,
        count(*) OVER (
            PARTITION BY study, base_model, paper, place, benchmark, task, eval_length
        ) AS num_methods
    FROM paper_comparison
    WHERE rank IS NOT NULL
    QUALIFY num_methods >= 3
),
columns_of_table AS (
    SELECT study, base_model, paper, place,
        count(DISTINCT (benchmark, task, coalesce(eval_length, 0))) AS num_columns
    FROM figures
    GROUP BY study, base_model, paper, place
),
-- Methods with figures in all columns of a table that has several.
in_all_columns AS (
    SELECT study, base_model, paper, place, method, frozen, any_value(num_columns) AS num_columns
    FROM figures JOIN columns_of_table USING (study, base_model, paper, place)
    GROUP BY study, base_model, paper, place, method, frozen
    HAVING count(DISTINCT (benchmark, task, coalesce(eval_length, 0))) = any_value(num_columns)
        AND any_value(num_columns) > 1
),
-- Ties get their mean rank: the first rank plus half of the number of further ties.
column_ranks AS (
    SELECT f.*, a.num_columns,
        rank() OVER (one_column ORDER BY f.x)
            + (count(*) OVER (same_ours) - 1) / 2 AS x_rank,
        rank() OVER (one_column ORDER BY f.y)
            + (count(*) OVER (same_theirs) - 1) / 2 AS y_rank
    FROM figures f
    JOIN in_all_columns a USING (study, base_model, paper, place, method, frozen)
    WINDOW
        one_column AS (
            PARTITION BY study, base_model, paper, place, benchmark, task, eval_length
        ),
        same_ours AS (
            PARTITION BY study, base_model, paper, place, benchmark, task, eval_length, x
        ),
        same_theirs AS (
            PARTITION BY study, base_model, paper, place, benchmark, task, eval_length, y
        )
),
-- What is correlated: the scores in each column, and the mean ranks over all columns of a table.
points AS (
    SELECT study, base_model, paper, place, benchmark, task, eval_length, 1 AS num_columns,
        concat_ws(' ', method, frozen, id) AS method, x, y
    FROM figures
    UNION ALL
    SELECT study, base_model, paper, place, NULL, NULL, NULL, any_value(num_columns),
        concat_ws(' ', method, frozen), avg(x_rank), avg(y_rank)
    FROM column_ranks
    GROUP BY study, base_model, paper, place, method, frozen
),
keyed AS (
    SELECT *,
        hash(
            study, base_model, paper, place, num_columns = 1, benchmark, task, eval_length
        ) AS key
    FROM points
),
point_ranks AS (
    SELECT *,
        rank() OVER (PARTITION BY key ORDER BY x)
            + (count(*) OVER (PARTITION BY key, x) - 1) / 2 AS x_rank,
        rank() OVER (PARTITION BY key ORDER BY y)
            + (count(*) OVER (PARTITION BY key, y) - 1) / 2 AS y_rank
    FROM keyed
),
spearman AS (
    SELECT key, any_value(study) AS study, any_value(base_model) AS base_model,
        any_value(paper) AS paper, any_value(place) AS place, any_value(benchmark) AS benchmark,
        any_value(task) AS task, any_value(eval_length) AS eval_length,
        any_value(num_columns) AS num_columns, count(*) AS n,
        -- Rounding can carry corr() beyond 1. least and greatest ignore NULL arguments, so CASE
        -- excludes columns without a correlation.
        CASE WHEN min(x) < max(x) AND min(y) < max(y)
            THEN greatest(-1, least(1, corr(x_rank, y_rank))) END AS r
    FROM point_ranks
    GROUP BY key
    HAVING count(*) >= 3
),
kendall AS (
    SELECT a.key,
        sum(sign(a.x - b.x) * sign(a.y - b.y))
            / nullif(sqrt(count(*) FILTER (a.x <> b.x) * count(*) FILTER (a.y <> b.y)), 0) AS ratio,
        CASE WHEN ratio IS NOT NULL THEN greatest(-1, least(1, ratio)) END AS tau
    FROM keyed a
    JOIN keyed b ON b.key = a.key AND a.method < b.method
    GROUP BY a.key
),
bounded AS (
    SELECT *,
        -- least and greatest ignore NULL arguments, so exclude a NULL correlation first.
        CASE WHEN n > 3 AND r IS NOT NULL THEN
            greatest(-1 + 6 / (n * (n * n - 1)), least(1 - 6 / (n * (n * n - 1)), r))
        END AS r_inside,
        CASE WHEN n > 4 AND tau IS NOT NULL THEN
            greatest(-1 + 2 / (n * (n - 1)), least(1 - 2 / (n * (n - 1)), tau))
        END AS tau_inside
    FROM spearman JOIN kendall USING (key)
),
spread AS (
    SELECT *,
        CASE WHEN r_inside IS NOT NULL THEN
            1.959963984540054 * sqrt((1 + r_inside ** 2 / 2) / (n - 3))
        END AS r_spread,
        CASE WHEN tau_inside IS NOT NULL THEN
            1.959963984540054 * sqrt(0.437 / (n - 4))
        END AS tau_spread
    FROM bounded
)
SELECT
    study,
    base_model,
    paper,
    place,
    benchmark,
    task,
    eval_length,
    num_columns,
    n AS num_methods,
    r AS spearman,
    CASE WHEN r_spread > 0 THEN
        least(r, tanh(atanh(r_inside) - r_spread))
    END AS spearman_low,
    CASE WHEN r_spread > 0 THEN
        greatest(r, tanh(atanh(r_inside) + r_spread))
    END AS spearman_high,
    tau AS kendall,
    CASE WHEN tau_spread > 0 THEN
        least(tau, tanh(atanh(tau_inside) - tau_spread))
    END AS kendall_low,
    CASE WHEN tau_spread > 0 THEN
        greatest(tau, tanh(atanh(tau_inside) + tau_spread))
    END AS kendall_high
FROM spread
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
    'Lower bound of the approximate 95 % interval of spearman over methods; NULL with fewer than four methods.';
COMMENT ON COLUMN paper_agreement.spearman_high IS
    'Upper bound of the approximate 95 % interval of spearman over methods; NULL with fewer than four methods.';
COMMENT ON COLUMN paper_agreement.kendall IS
    'Kendall''s tau-b of our order and the paper''s; NULL if all our scores or all printed ones are equal.';
COMMENT ON COLUMN paper_agreement.kendall_low IS
    'Lower bound of the approximate 95 % interval of kendall over methods; NULL with fewer than five methods.';
COMMENT ON COLUMN paper_agreement.kendall_high IS
    'Upper bound of the approximate 95 % interval of kendall over methods; NULL with fewer than five methods.';
