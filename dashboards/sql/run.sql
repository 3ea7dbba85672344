SELECT count(*) AS cells,
    count(*) FILTER (status = 'done') AS done,
    count(DISTINCT seed) AS seeds,
    string_agg(DISTINCT profile, ', ' ORDER BY profile) AS profiles,
    string_agg(DISTINCT kernel, ', ' ORDER BY kernel) AS kernels,
    min(created_at) AS first,
    max(created_at) AS last
FROM cells
LEFT JOIN (
    SELECT DISTINCT study, cell, profile, kernel, created_at FROM scores
) USING (study, cell)
WHERE study = $study
