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
