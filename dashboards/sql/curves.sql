-- Loss by position, in at most 32 bins per length. The stored bins are narrower and noisier; each bin
-- here is the mean of several of them.
WITH stored AS (
    SELECT base_model, benchmark, task, eval_length,
        coalesce(min(position_bin) FILTER (position_bin > 0), max(eval_length)) AS bin
    FROM nll_by_position
    WHERE study = $study
    GROUP BY ALL
),
wide AS (
    SELECT n.*, ceil(eval_length / 32 / bin)::BIGINT * bin AS width
    FROM nll_by_position n
    JOIN stored USING (base_model, benchmark, task, eval_length)
    WHERE study = $study
)
SELECT base_model, method, frozen, benchmark, task, eval_length, width,
    (position_bin // width) * width AS position,
    avg(nll) AS nll,
    any_value(num_seeds) AS num_seeds
FROM wide
GROUP BY ALL
HAVING count(nll) = count(*)
ORDER BY base_model, benchmark, task, eval_length DESC, method, frozen, position
