-- Loss by position in 32 bins of each length: single bins of few tokens are noise.
WITH wide AS (
    SELECT *, greatest(1, eval_length // 32) AS width FROM nll_by_position WHERE study = $study
)
SELECT base_model, method, frozen, benchmark, task, eval_length,
    (position_bin // width) * width AS position,
    avg(nll) AS nll,
    any_value(num_seeds) AS num_seeds
FROM wide
GROUP BY ALL
HAVING count(nll) = count(*)
ORDER BY base_model, benchmark, task, eval_length DESC, method, frozen, position
