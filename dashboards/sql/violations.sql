SELECT factor, among, value, usual, methods,
    sum(num_cells)::BIGINT AS cells,
    string_agg(DISTINCT benchmark, ', ' ORDER BY benchmark) AS benchmarks
FROM control_violations
WHERE study = $study
GROUP BY factor, among, value, usual, methods
ORDER BY factor, among, cells DESC, value
