-- Training loss by number of tokens, for the last training run of each method, in 32 bins, mean over
-- seeds.
WITH runs AS (
    SELECT DISTINCT base_model, method, frozen, checkpoint
    FROM scores
    WHERE study = $study AND NOT frozen AND checkpoint IS NOT NULL
),
logged AS (
    SELECT r.*, t.tokens, t.loss,
        greatest(1, max(t.tokens) OVER (PARTITION BY r.base_model) // 32) AS width
    FROM runs r
    JOIN trainings t USING (checkpoint)
)
SELECT base_model, method, frozen,
    (tokens // width) * width AS tokens,
    avg(loss) AS loss,
    count(DISTINCT checkpoint) AS num_seeds
FROM logged
GROUP BY base_model, method, frozen, tokens // width, width
ORDER BY base_model, method, frozen, tokens
