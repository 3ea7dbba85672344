-- Views with the shape of the papers' tables, one schema per paper; catalog/reference/tables.csv
-- lists them. Each method has a row of printed values and a row per study that repeats the table.

CREATE TABLE papers.place (
    paper VARCHAR NOT NULL,
    place VARCHAR NOT NULL,
    view VARCHAR,
    title VARCHAR NOT NULL,
    row_axis VARCHAR,
    column_axis VARCHAR,
    lengths VARCHAR NOT NULL,
    reason VARCHAR
);

CREATE VIEW paper_tables AS FROM papers.place ORDER BY rowid;

COMMENT ON VIEW paper_tables IS
    'Tables and figures of the papers, each with the view that has its shape, as in FROM lceg.table_2.';

CREATE VIEW papers.beside AS
WITH ours AS MATERIALIZED (
    SELECT study, id, value FROM paper_comparison
),
compared AS (
    SELECT DISTINCT o.study, s.paper, s.place, s.base_model
    FROM ours o
    JOIN papers.score s USING (id)
),
compared_tables AS (
    SELECT DISTINCT study, paper, place FROM compared
),
sides AS (
    SELECT
        s.id, c.study, 'paper' AS source, s.value,
        CASE WHEN s.value IS NOT NULL THEN coalesce(s.mean_lengths, s.eval_length::VARCHAR) END
            AS lengths
    FROM papers.score s
    LEFT JOIN compared_tables c USING (paper, place)
    UNION ALL
    SELECT
        s.id, c.study, 'ours',
        o.value * CASE s.unit WHEN 'percent' THEN 100 ELSE 1 END,
        CASE WHEN o.id IS NOT NULL THEN coalesce(s.mean_lengths, s.eval_length::VARCHAR) END
    FROM papers.score s
    JOIN compared c USING (paper, place, base_model)
    LEFT JOIN ours o ON o.study = c.study AND o.id = s.id
    WHERE s.method IS NOT NULL
)
SELECT
    f.study,
    f.source,
    f.value,
    string_split(f.lengths, ' ')::BIGINT[] AS lengths,
    s.* EXCLUDE (value)
FROM sides f
JOIN papers.score s USING (id);

COMMENT ON VIEW papers.beside IS
    'Figures of the papers'' tables: source paper has the printed value; source ours has the value of each study with figures of the table, in the printed unit. lengths is NULL if nothing is printed or planned.';
