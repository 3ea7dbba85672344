-- Trials of the study's `tune`, under the label of the variant with the common value. A trial has one
-- seed.
SELECT base_model, common_method AS method, false AS frozen, field, value, nll, chosen, at_edge,
    1 AS num_seeds
FROM trials
WHERE study = $study AND nll IS NOT NULL
