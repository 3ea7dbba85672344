-- Pairs of variants that are the same computation under two names: equal in every comparison, one of
-- which is on text. Equal accuracies alone prove nothing, because many methods answer every prompt.
FROM paired_difference
SELECT base_model, method, frozen, other_method, other_frozen
WHERE study = $study AND (method, frozen) < (other_method, other_frozen)
GROUP BY ALL
HAVING bool_and(verdict = 'the same') AND bool_or(unit IN ('perplexity', 'nats'))
