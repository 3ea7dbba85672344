-- Our scores beside the papers'. A row is a printed figure that a study has planned all parts of;
-- ours is the mean over these parts (tasks, lengths) and all seeds, and NULL unless each is done.

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
asked AS (
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
    JOIN part t ON t.id = p.id
    JOIN asked a ON a.id = p.id
    JOIN store.cell c
        ON c.base_model = p.base_model AND c.method = p.method AND c.frozen = p.frozen
        AND c.benchmark = p.benchmark AND c.profile = p.profile
        AND c.task = t.task AND c.eval_length = t.eval_length
        -- The same label may stand for another extension: YaRN to 32k and to 128k.
        AND (p.target_context IS NULL OR c.target_context = p.target_context)
        AND (c.frozen OR p.train_length IS NULL OR c.train_length = p.train_length)
    LEFT JOIN store.score s
        ON s.cell = c.cell AND c.status = 'done'
        AND CASE WHEN p.metric IS NULL THEN s.is_default ELSE s.metric = p.metric END
    GROUP BY p.id, c.study, a.num_parts
    HAVING count(DISTINCT (c.task, c.eval_length)) = a.num_parts
),
beside AS (
    SELECT
        o.*,
        p.* EXCLUDE (id, metric, unit, value),
        if_complete(o.mean, o.num_done, o.num_planned) AS value,
        p.value * CASE p.unit WHEN 'percent' THEN 0.01 ELSE 1 END AS paper_value,
        p.unit <> 'perplexity' AS higher_is_better
    FROM ours o
    JOIN papers.score p ON p.id = o.id
),
shared AS (
    SELECT *, value IS NOT NULL AND paper_value IS NOT NULL AS has_both FROM beside
),
ranked AS (
    SELECT *,
        CASE WHEN has_both THEN rank() OVER (
            one_column ORDER BY CASE WHEN higher_is_better THEN -value ELSE value END
        ) END AS rank,
        CASE WHEN has_both THEN rank() OVER (
            one_column ORDER BY CASE WHEN higher_is_better THEN -paper_value ELSE paper_value END
        ) END AS paper_rank
    FROM shared
    WINDOW one_column AS (
        PARTITION BY study, base_model, paper, place, benchmark, task, eval_length, has_both
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
    value - paper_value AS difference,
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

-- Rank agreement. Ties have their mean place (Spearman) and the tau-b form (Kendall). Intervals are
-- Fisher's z with the standard errors that Bonett and Wright (2000) recommend, over methods as if
-- they were a sample of methods. A perfect order would have no spread, so z is taken half a swap of
-- neighbours away from it.

CREATE VIEW paper_agreement AS
WITH one AS (
    SELECT *,
        CASE WHEN higher_is_better THEN -value ELSE value END AS x,
        CASE WHEN higher_is_better THEN -paper_value ELSE paper_value END AS y,
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
    FROM one
    GROUP BY study, base_model, paper, place
),
in_all AS (
    SELECT study, base_model, paper, place, method, frozen, any_value(num_columns) AS num_columns
    FROM one JOIN columns_of_table USING (study, base_model, paper, place)
    GROUP BY study, base_model, paper, place, method, frozen
    HAVING count(DISTINCT (benchmark, task, coalesce(eval_length, 0))) = any_value(num_columns)
        AND any_value(num_columns) > 1
),
places AS (
    SELECT o.*, a.num_columns,
        rank() OVER (one_column ORDER BY o.x)
            + (count(*) OVER (same_ours) - 1) / 2 AS x_place,
        rank() OVER (one_column ORDER BY o.y)
            + (count(*) OVER (same_theirs) - 1) / 2 AS y_place
    FROM one o
    JOIN in_all a USING (study, base_model, paper, place, method, frozen)
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
point AS (
    SELECT study, base_model, paper, place, benchmark, task, eval_length, 1 AS num_columns,
        concat_ws(' ', method, frozen, id) AS method, x, y
    FROM one
    UNION ALL
    SELECT study, base_model, paper, place, NULL, NULL, NULL, any_value(num_columns),
        concat_ws(' ', method, frozen), avg(x_place), avg(y_place)
    FROM places
    GROUP BY study, base_model, paper, place, method, frozen
),
keyed AS (
    SELECT *,
        hash(
            study, base_model, paper, place, num_columns = 1, benchmark, task, eval_length
        ) AS key
    FROM point
),
placed AS (
    SELECT *,
        rank() OVER (PARTITION BY key ORDER BY x)
            + (count(*) OVER (PARTITION BY key, x) - 1) / 2 AS x_place,
        rank() OVER (PARTITION BY key ORDER BY y)
            + (count(*) OVER (PARTITION BY key, y) - 1) / 2 AS y_place
    FROM keyed
),
spearman AS (
    SELECT key, any_value(study) AS study, any_value(base_model) AS base_model,
        any_value(paper) AS paper, any_value(place) AS place, any_value(benchmark) AS benchmark,
        any_value(task) AS task, any_value(eval_length) AS eval_length,
        any_value(num_columns) AS num_columns, count(*) AS n,
        CASE WHEN min(x) < max(x) AND min(y) < max(y) THEN corr(x_place, y_place) END AS r
    FROM placed
    GROUP BY key
    HAVING count(*) >= 3
),
kendall AS (
    SELECT a.key,
        sum(sign(a.x - b.x) * sign(a.y - b.y))
            / nullif(sqrt(count(*) FILTER (a.x <> b.x) * count(*) FILTER (a.y <> b.y)), 0) AS tau
    FROM keyed a
    JOIN keyed b ON b.key = a.key AND a.method < b.method
    GROUP BY a.key
),
bounded AS (
    SELECT *,
        -- least and greatest pass over a NULL, so its case is apart.
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
