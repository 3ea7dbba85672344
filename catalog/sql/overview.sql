-- One row per method in the shape of Table 1 of arXiv:2409.12181: all benchmarks at one length.

CREATE VIEW overview AS
WITH longest AS (
    SELECT study, max(eval_length) AS longest_length
    FROM store.cell
    WHERE benchmark IN ('perplexity', 'needle', 'passkey')
    GROUP BY study
),
per_seed AS (
    SELECT c.study, c.base_model, c.method, c.frozen, c.seed, c.benchmark, c.eval_length,
        avg(s.value) AS value
    FROM store.cell c
    JOIN store.score s ON s.cell = c.cell
    WHERE c.status = 'done' AND s.is_default
    GROUP BY c.study, c.base_model, c.method, c.frozen, c.seed, c.benchmark, c.eval_length
),
at_target AS (
    SELECT p.study, p.base_model, p.method, p.frozen,
        avg(value) FILTER (benchmark = 'perplexity') AS perplexity,
        avg(value) FILTER (benchmark = 'needle') AS needle,
        avg(value) FILTER (benchmark = 'passkey') AS passkey,
        avg(value) FILTER (benchmark = 'many_shot') AS many_shot,
        avg(value) FILTER (benchmark = 'longbench') AS longbench,
        avg(value) FILTER (benchmark = 'ruler') AS ruler,
        count(DISTINCT seed) AS num_seeds
    FROM per_seed p
    JOIN store.study s ON s.study = p.study AND s.base_model = p.base_model
    WHERE p.eval_length = s.target_context
    GROUP BY p.study, p.base_model, p.method, p.frozen
),
at_longest AS (
    SELECT p.study, p.base_model, p.method, p.frozen,
        avg(value) FILTER (benchmark = 'perplexity') AS perplexity,
        avg(value) FILTER (benchmark = 'needle') AS needle,
        avg(value) FILTER (benchmark = 'passkey') AS passkey
    FROM per_seed p
    JOIN longest l ON l.study = p.study
    WHERE p.eval_length = l.longest_length
    GROUP BY p.study, p.base_model, p.method, p.frozen
),
methods AS (
    SELECT study, base_model, method, frozen,
        any_value(exact_attention) AS exact_attention,
        min(position) AS position,
        count(*) FILTER (status IN ('failed', 'missing')) AS num_missing
    FROM store.cell
    GROUP BY study, base_model, method, frozen
)
SELECT
    m.study,
    m.base_model,
    m.method,
    m.frozen,
    m.exact_attention,
    t.perplexity,
    t.needle,
    t.passkey,
    t.many_shot,
    t.longbench,
    t.ruler,
    coalesce(t.num_seeds, 0) AS num_seeds,
    e.perplexity AS perplexity_longest,
    e.needle AS needle_longest,
    e.passkey AS passkey_longest,
    s.target_context,
    l.longest_length,
    m.num_missing
FROM methods m
JOIN store.study s ON s.study = m.study AND s.base_model = m.base_model
LEFT JOIN longest l ON l.study = m.study
LEFT JOIN at_target t
    ON t.study = m.study AND t.base_model = m.base_model
    AND t.method = m.method AND t.frozen = m.frozen
LEFT JOIN at_longest e
    ON e.study = m.study AND e.base_model = m.base_model
    AND e.method = m.method AND e.frozen = m.frozen
ORDER BY m.study, m.position;

COMMENT ON VIEW overview IS
    'One row per method: each benchmark at the target context, and beyond it; mean over tasks and seeds.';
COMMENT ON COLUMN overview.study IS 'Name of the study.';
COMMENT ON COLUMN overview.base_model IS 'Registered name of the base model.';
COMMENT ON COLUMN overview.method IS 'Label of the method; none is the control.';
COMMENT ON COLUMN overview.frozen IS 'true: applied without fine-tuning; false: fine-tuned.';
COMMENT ON COLUMN overview.exact_attention IS 'Whether every token can attend to every earlier one.';
COMMENT ON COLUMN overview.perplexity IS 'Perplexity at the target context; lower is better.';
COMMENT ON COLUMN overview.needle IS 'Needle retrieval at the target context; higher is better.';
COMMENT ON COLUMN overview.passkey IS 'Passkey retrieval at the target context; higher is better.';
COMMENT ON COLUMN overview.many_shot IS 'Many-shot learning at the target context; NULL if not in the study.';
COMMENT ON COLUMN overview.longbench IS 'LongBench at the target context; NULL if not in the study.';
COMMENT ON COLUMN overview.ruler IS 'RULER at the target context; NULL if not in the study.';
COMMENT ON COLUMN overview.num_seeds IS 'Seeds with a result at the target context.';
COMMENT ON COLUMN overview.perplexity_longest IS 'Perplexity at the longest evaluated length.';
COMMENT ON COLUMN overview.needle_longest IS 'Needle retrieval at the longest evaluated length.';
COMMENT ON COLUMN overview.passkey_longest IS 'Passkey retrieval at the longest evaluated length.';
COMMENT ON COLUMN overview.target_context IS 'Context the methods extend to, in tokens.';
COMMENT ON COLUMN overview.longest_length IS 'Longest evaluated length of the study, in tokens.';
COMMENT ON COLUMN overview.num_missing IS 'Cells of this row that failed or are not there yet, over all lengths.';
