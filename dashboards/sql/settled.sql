-- Variants whose comparisons looks have all settled, with the number of seeds at the last of these
-- looks.
WITH sides AS (
    SELECT base_model, method, frozen, settled_seeds FROM expectations WHERE study = $study
    UNION ALL
    SELECT base_model, other_method, other_frozen, settled_seeds FROM expectations
    WHERE study = $study
)
SELECT base_model, method, frozen, max(settled_seeds) AS num_seeds
FROM sides
GROUP BY base_model, method, frozen
HAVING count(*) = count(settled_seeds)
ORDER BY num_seeds, base_model, method, frozen
