WITH given AS (
    SELECT s.benchmark AS name, s.profile, list(DISTINCT a.spec->>'$.benchmark') AS settings
    FROM scores s
    JOIN artifacts a ON a.artifact = s.cell
    WHERE s.study = $study
    GROUP BY ALL
)
FROM plugins
LEFT JOIN given USING (name, profile)
WHERE study = $study AND part = 'benchmark'
ORDER BY name, profile
