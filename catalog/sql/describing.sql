CREATE VIEW view_columns AS
SELECT
    if(v.schema_name = 'main', v.view_name, v.schema_name || '.' || v.view_name) AS view_name,
    c.column_name,
    c.data_type,
    c.comment,
    v.comment AS view_comment
FROM duckdb_views() v
JOIN duckdb_columns() c
    ON c.database_name = v.database_name AND c.schema_name = v.schema_name AND c.table_name = v.view_name
WHERE NOT v.internal AND v.database_name = current_database()
ORDER BY v.schema_name <> 'main', v.schema_name, v.view_name, c.column_index;

COMMENT ON VIEW view_columns IS 'Columns of all views and what they mean, one row each.';
