SELECT e.* EXCLUDE (num_artifacts, first_used, last_used),
    concat_ws(', ', nullif(e.accelerators, ''), e.cpu, e.instructions) AS hardware,
    count(DISTINCT a.artifact) AS num_artifacts,
    min(a.started_at) AS first_used,
    max(a.created_at) AS last_used
FROM environments e
JOIN artifacts a USING (environment)
JOIN cells c ON c.cell = a.artifact
WHERE c.study = $study
GROUP BY ALL
ORDER BY first_used, environment
