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
