-- Data of LCEG's figures. LCEG prints no numbers for them, so every study with the benchmark is
-- shown, whatever its base model and profile.

CREATE VIEW lceg.figure_1 AS
WITH found AS (
    SELECT
        c.study, c.base_model, c.method, c.frozen, c.benchmark, c.task, c.eval_length, s.depth,
        avg(s.score) AS score,
        count(*) AS num_samples
    FROM store.cell c
    JOIN store.sample s ON s.cell = c.cell
    WHERE c.benchmark = 'needle' AND c.status = 'done'
    GROUP BY ALL
)
SELECT
    study,
    base_model,
    method,
    frozen,
    eval_length,
    depth,
    CASE WHEN value IS NOT NULL THEN score END AS score,
    num_samples,
    task
FROM found
JOIN score_by_length USING (study, base_model, method, frozen, benchmark, task, eval_length)
ORDER BY study, base_model, method, frozen, task, eval_length, depth;

COMMENT ON VIEW lceg.figure_1 IS
    'Figure 1. Needle retrieval against length and depth, one row per method, length and depth. Lengths: all lengths of the study; the paper has 20 from 1,000 to 62,872.';

CREATE VIEW lceg.figure_2 AS
SELECT
    study,
    base_model,
    method,
    frozen,
    regexp_extract(task, '[0-9]+')::BIGINT AS shots,
    value AS accuracy,
    eval_length,
    num_seeds,
    missing
FROM score_by_length
WHERE benchmark = 'many_shot'
ORDER BY study, base_model, method, frozen, eval_length, shots;

COMMENT ON VIEW lceg.figure_2 IS
    'Figure 2. Many-shot accuracy against shots. Lengths: the context that the shots must fit in; in the paper, the base model''s own or the target.';

CREATE VIEW lceg.figure_3 AS
SELECT
    study,
    base_model,
    method,
    frozen,
    task,
    eval_length,
    position_bin,
    nll
FROM nll_by_position
WHERE benchmark = 'nll_by_position';

COMMENT ON VIEW lceg.figure_3 IS
    'Figure 3. Negative log-likelihood (NLL) by position. Lengths: all lengths of the study; the paper has 64k for the base, NTK-32K and YaRN.';

CREATE VIEW lceg.figure_4 AS
SELECT
    study,
    base_model,
    method,
    frozen,
    exact_attention,
    eval_length,
    any_value(perplexity) AS perplexity,
    any_value(value) FILTER (benchmark = 'needle') AS needle,
    any_value(value) FILTER (benchmark = 'longbench') AS longbench,
    any_value(value) FILTER (benchmark = 'ruler') AS ruler
FROM perplexity_vs_downstream
GROUP BY ALL
ORDER BY study, base_model, eval_length, method, frozen;

COMMENT ON VIEW lceg.figure_4 IS
    'Figure 4. Perplexity and downstream scores, one row per point. Lengths: those at which the method has perplexity and a downstream benchmark.';

CREATE VIEW lceg.figure_5 AS
FROM lceg.figure_1
WHERE method IN ('ntk_64k', 'ntk_64k_2b');

COMMENT ON VIEW lceg.figure_5 IS
    'Figure 5. Figure 1 for NTK-64K after one and two billion training tokens (ntk_64k, ntk_64k_2b). Lengths: as in figure 1.';
