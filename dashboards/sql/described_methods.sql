SELECT c.method, p.name, any_value(p.summary) AS summary, any_value(p.source) AS source,
    any_value(p.place) AS place,
    list(DISTINCT a.spec->>'$.method') AS settings
FROM cells c
JOIN plugins p ON p.study = c.study AND p.part = 'method' AND p.name = c.method_name
LEFT JOIN artifacts a ON a.artifact = c.cell
WHERE c.study = $study
GROUP BY c.method, p.name
ORDER BY c.method
