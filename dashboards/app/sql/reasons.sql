-- Cells without a result, grouped by reason.
SELECT base_model, status, reason,
    count(*) AS cells,
    string_agg(
        DISTINCT variant_label(method, frozen), ', '
        ORDER BY variant_label(method, frozen)
    ) AS methods,
    string_agg(DISTINCT benchmark, ', ' ORDER BY benchmark) AS benchmarks,
    array_to_string(list_sort(list(DISTINCT eval_length)), ', ') AS lengths
FROM missing_cells
WHERE study = $study
GROUP BY base_model, status, reason
ORDER BY status, cells DESC, reason
