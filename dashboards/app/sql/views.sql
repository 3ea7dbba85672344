-- The catalog's views with their comments and columns.
SELECT v.view_name AS view, v.comment AS holds,
    list(c.column_name ORDER BY c.column_index) AS columns
FROM duckdb_views() v
JOIN duckdb_columns() c ON c.table_name = v.view_name AND c.schema_name = v.schema_name
    AND c.database_name = v.database_name
WHERE v.schema_name = 'main' AND NOT v.internal
GROUP BY ALL
ORDER BY ALL
