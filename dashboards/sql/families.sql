SELECT base_model, method, frozen, any_value(family) AS family
FROM cells
WHERE study = $study
GROUP BY base_model, method, frozen
