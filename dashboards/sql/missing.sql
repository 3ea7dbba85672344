SELECT status, base_model, method, frozen, reason,
    string_agg(DISTINCT benchmark, ', ' ORDER BY benchmark) AS benchmarks,
    list(DISTINCT eval_length ORDER BY eval_length) AS eval_lengths,
    list(DISTINCT seed ORDER BY seed) AS seeds,
    count(*) AS cells
FROM missing_cells
WHERE study = $study
GROUP BY status, base_model, method, frozen, reason
ORDER BY status, base_model, method, frozen, reason
