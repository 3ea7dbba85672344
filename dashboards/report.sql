-- Queries of the report; each has the parameter $study. `Contents` has their rows by the names here.

-- name: studies
-- One row per base model.
FROM studies WHERE study = $study

-- name: overview
-- One row per variant (method, frozen or tuned), in the study's order.
FROM overview WHERE study = $study

-- name: registrations
-- Versions of the hypothesis and the expectations, oldest first.
FROM registrations WHERE study = $study ORDER BY version

-- name: expectations
-- Comparisons that the study file predicts, without those that every study makes.
FROM expectations WHERE study = $study AND entry IS NOT NULL

-- name: short_context
-- Comparisons of each method with the base model at its longest evaluated length within its trained
-- context, which every study makes.
SELECT
    base_model, method, frozen, benchmark, eval_length, margin, is_ratio, outcome, family, verdict,
    generalises_to, num_needed,
    difference / CASE WHEN is_ratio THEN other_value ELSE 1 END AS difference,
    ci_low / CASE WHEN is_ratio THEN other_value ELSE 1 END AS ci_low,
    ci_high / CASE WHEN is_ratio THEN other_value ELSE 1 END AS ci_high
FROM expectations
WHERE study = $study AND entry IS NULL AND outcome <> 'not measured'

-- name: settled
-- Variants whose comparisons looks have all settled, with the number of seeds at the last of these
-- looks.
WITH tested AS (
    -- Looks test neither rank correlations nor the comparisons that every study makes.
    FROM expectations
    WHERE study = $study AND entry IS NOT NULL AND method IS NOT NULL AND withdrawn_after IS NULL
),
sides AS (
    SELECT base_model, method, frozen, settled_seeds FROM tested
    UNION ALL
    SELECT base_model, other_method, other_frozen, settled_seeds FROM tested
)
SELECT base_model, method, frozen, max(settled_seeds) AS num_seeds
FROM sides
GROUP BY base_model, method, frozen
HAVING count(*) = count(settled_seeds)
ORDER BY num_seeds, base_model, method, frozen

-- name: families
-- One row per variant, with its method family.
SELECT base_model, method, frozen, any_value(family) AS family
FROM cells
WHERE study = $study
GROUP BY base_model, method, frozen

-- name: scores
-- Default metric by task, length and method, mean over seeds; its 95 % interval for other seeds and
-- prompts, if known; and whether it is the best value among methods with equal tasks and seeds.
WITH ordered AS (
    SELECT *, row_number() OVER () AS position,
        coalesce(
            rank = 1 AND count(value) OVER place > 1
            AND min(task_set) FILTER (value IS NOT NULL) OVER place
                = max(task_set) FILTER (value IS NOT NULL) OVER place,
            false
        ) AS is_best
    FROM score_by_length
    WHERE study = $study
    WINDOW place AS (PARTITION BY base_model, benchmark, task, eval_length)
),
intervals AS (
    SELECT DISTINCT ON (base_model, method, frozen, benchmark, task, eval_length)
        base_model, method, frozen, benchmark, task, eval_length, ci_low, ci_high, num_documents
    FROM mean_over_seeds
    WHERE study = $study
)
SELECT * EXCLUDE (position)
FROM ordered
LEFT JOIN intervals USING (base_model, method, frozen, benchmark, task, eval_length)
ORDER BY position

-- name: gains
-- What each method loses within the trained context and gains beyond it.
SELECT base_model, method, frozen, variant, benchmark, within_length, lost, beyond_length, gained,
    unit, reason
FROM lost_and_gained WHERE study = $study

-- name: sample_counts
-- Number of prompts or windows of text behind the score of one seed. Methods can differ in it.
SELECT base_model, benchmark, task, eval_length,
    min(num_samples) AS fewest,
    max(num_samples) AS most
FROM scores
WHERE study = $study AND is_default
GROUP BY ALL

-- name: standing
-- Share of comparisons that each method wins. A method is compared with every other method on each
-- task and length beyond the trained context at which both have a value. A tie counts as half a win.
WITH shown AS (
    SELECT s.*,
        CASE s.kind WHEN 'text' THEN 'perplexity' ELSE s.kind END AS measure
    FROM score_by_length s
    JOIN studies t USING (study, base_model)
    WHERE s.study = $study AND s.value IS NOT NULL
        AND s.eval_length > coalesce(t.trained_context, 0)
        AND (s.kind <> 'text' OR s.unit = 'perplexity')
)
SELECT a.base_model, a.method, a.frozen, a.measure,
    avg(
        CASE
            WHEN a.value = b.value THEN 0.5
            WHEN (a.value > b.value) = a.higher_is_better THEN 1
            ELSE 0
        END
    ) AS won,
    count(*) AS comparisons
FROM shown a
JOIN shown b USING (base_model, benchmark, task, eval_length, task_set)
WHERE (a.method, a.frozen) <> (b.method, b.frozen)
GROUP BY a.base_model, a.method, a.frozen, a.measure
ORDER BY a.base_model, a.measure, won DESC, a.method, a.frozen

-- name: nll_differences
-- Difference of each method's NLL (negative log-likelihood) from the base model's, by band of
-- positions.
FROM nll_against_base
WHERE study = $study

-- name: curves
-- Loss by position, in at most 32 bins per length. The stored bins are narrower and noisier; each bin
-- here is the mean of several of them.
WITH stored AS (
    SELECT base_model, benchmark, task, eval_length,
        coalesce(min(position_bin) FILTER (position_bin > 0), max(eval_length)) AS bin
    FROM nll_by_position
    WHERE study = $study
    GROUP BY ALL
),
wide AS (
    SELECT n.*, ceil(eval_length / 32 / bin)::BIGINT * bin AS width
    FROM nll_by_position n
    JOIN stored USING (base_model, benchmark, task, eval_length)
    WHERE study = $study
)
SELECT base_model, method, frozen, benchmark, task, eval_length, width,
    (position_bin // width) * width AS position,
    avg(nll) AS nll,
    any_value(num_seeds) AS num_seeds
FROM wide
GROUP BY ALL
HAVING count(nll) = count(*)
ORDER BY base_model, benchmark, task, eval_length DESC, method, frozen, position

-- name: benchmarks
-- Default metric by benchmark, length and method, mean over tasks and seeds.
FROM benchmark_by_length WHERE study = $study

-- name: differences
-- Scores that differ significantly from the base model's on the same prompts: one row per task and
-- length; task is NULL for a mean over several tasks. Benchmarks with two profiles are left out,
-- because a score of the tables could mean either.
FROM paired_difference
SELECT base_model, method, frozen, benchmark, task, eval_length, verdict, p_adjusted
WHERE study = $study AND other_method = 'none' AND other_frozen
QUALIFY count(*) OVER (
        PARTITION BY base_model, method, frozen, benchmark, task, eval_length
    ) = 1
    AND verdict IN ('better', 'worse')

-- name: pairs
-- Comparisons of all methods over the benchmark's tasks, one row per benchmark, length and ordered
-- pair.
-- Pairs that share one task come first, because the last row of a method has the score to show.
FROM paired_difference
SELECT base_model, method, frozen, other_method, other_frozen, benchmark, profile, eval_length,
    higher_is_better, value, other_value, difference, ci_low, ci_high, p_adjusted, family, verdict
WHERE study = $study AND is_all_tasks
ORDER BY benchmark, profile, eval_length, task IS NULL

-- name: duplicates
-- Pairs of variants with the same score on every document of a text, and on every prompt.
FROM same_computation WHERE study = $study

-- name: depths
-- Scores by depth, of retrieval benchmarks that hide their answers on a grid: at depths that are
-- evenly spaced or all whole per cents.
WITH spaced AS (
    SELECT c.benchmark, s.depth,
        s.depth - lag(s.depth) OVER (PARTITION BY c.benchmark ORDER BY s.depth) AS gap
    FROM cells c
    JOIN samples s USING (cell)
    WHERE c.study = $study AND c.kind = 'retrieval' AND s.depth IS NOT NULL
    GROUP BY c.benchmark, s.depth
), gridded AS (
    SELECT benchmark
    FROM spaced
    GROUP BY benchmark
    HAVING bool_and(depth = round(depth)) OR max(gap) - min(gap) < 1e-6
)
SELECT p.base_model, p.method, p.frozen, p.benchmark, p.task, p.eval_length, s.depth,
    avg(s.score) AS value,
    count(*) AS num_samples
FROM score_by_length p
SEMI JOIN gridded USING (benchmark)
JOIN cells c USING (study, base_model, method, frozen, benchmark, task, eval_length)
JOIN samples s USING (cell)
WHERE p.study = $study AND p.value IS NOT NULL AND s.depth IS NOT NULL
GROUP BY ALL
ORDER BY ALL

-- name: shots
-- Many-shot accuracy by number of examples in the prompt, mean over seeds. The interval covers other
-- seeds and prompts (with one seed, other prompts only). Chance is one of TREC's 50 classes. It is
-- NULL in profile tiny, whose classes are the base model's own key tokens.
WITH asked AS (
    SELECT base_model, method, frozen, task, eval_length,
        CASE WHEN bool_and(profile <> 'tiny') THEN 1 / 50 END AS chance
    FROM scores
    WHERE study = $study AND benchmark = 'many_shot' AND is_default
    GROUP BY base_model, method, frozen, task, eval_length
)
SELECT s.base_model, s.method, s.frozen, s.eval_length,
    regexp_extract(s.task, '[0-9]+')::BIGINT AS shots,
    s.value,
    CASE WHEN s.value IS NOT NULL THEN coalesce(m.ci_low, s.value) END AS lowest,
    CASE WHEN s.value IS NOT NULL THEN coalesce(m.ci_high, s.value) END AS highest,
    s.num_seeds,
    s.num_planned,
    s.value_of_done,
    s.missing,
    a.chance
FROM score_by_length s
LEFT JOIN asked a USING (base_model, method, frozen, task, eval_length)
LEFT JOIN mean_over_seeds m
    ON m.study = s.study AND m.base_model = s.base_model AND m.benchmark = s.benchmark
    AND m.method = s.method AND m.frozen = s.frozen AND m.task = s.task
    AND m.eval_length = s.eval_length AND m.num_seeds = s.num_planned
WHERE s.study = $study AND s.benchmark = 'many_shot'

-- name: trainings
-- Training loss by number of tokens, for the last training run of each method, in 32 bins, mean over
-- seeds.
WITH runs AS (
    SELECT DISTINCT base_model, method, frozen, checkpoint
    FROM scores
    WHERE study = $study AND NOT frozen AND checkpoint IS NOT NULL
),
logged AS (
    SELECT r.*, t.tokens, t.loss,
        greatest(1, max(t.tokens) OVER (PARTITION BY r.base_model) // 32) AS width
    FROM runs r
    JOIN trainings t USING (checkpoint)
)
SELECT base_model, method, frozen,
    (tokens // width) * width AS tokens,
    avg(loss) AS loss,
    count(DISTINCT checkpoint) AS num_seeds
FROM logged
GROUP BY base_model, method, frozen, tokens // width, width
ORDER BY base_model, method, frozen, tokens

-- name: training_settings
-- Text, steps and optimiser of the training runs, with the methods that used them.
SELECT base_model, is_finetuning, corpus, num_steps, row_length, settings,
    list(DISTINCT {'method': method, 'frozen': frozen}) AS methods
FROM training_runs
WHERE study = $study
GROUP BY ALL
ORDER BY base_model, is_finetuning, count(*) DESC, row_length

-- name: trials
-- Trials of the study's `tune`, under the label of the variant with the common value. A trial has one
-- seed.
SELECT base_model, common_method AS method, false AS frozen, field, value, nll, chosen, at_edge,
    1 AS num_seeds
FROM trials
WHERE study = $study AND nll IS NOT NULL

-- name: own_best
-- Each tuned method at the common value of the tuned setting and at its own best value, with ranks
-- among these methods and the verdict on the difference.
WITH pairs AS (
    FROM trials
    SELECT base_model, method, common_method, common_value, value AS own_value
    WHERE study = $study AND chosen
),
verdicts AS (
    FROM paired_difference
    SELECT base_model, method, frozen, other_method, other_frozen, benchmark, eval_length,
        any_value(verdict) AS verdict
    WHERE study = $study
    GROUP BY ALL
)
SELECT
    p.base_model, b.benchmark, b.eval_length, p.common_method AS method,
    p.common_value, c.value AS common_score,
    rank() OVER (
        PARTITION BY p.base_model, b.benchmark, b.eval_length
        ORDER BY best_first(c.value, c.higher_is_better)
    ) AS common_rank,
    p.own_value, b.value AS own_score,
    rank() OVER (
        PARTITION BY p.base_model, b.benchmark, b.eval_length
        ORDER BY best_first(b.value, b.higher_is_better)
    ) AS own_rank,
    d.verdict
FROM pairs p
JOIN benchmark_by_length b
    ON b.study = $study AND b.base_model = p.base_model AND b.method = p.method AND NOT b.frozen
JOIN benchmark_by_length c
    ON c.study = $study AND c.base_model = p.base_model AND c.method = p.common_method
    AND NOT c.frozen AND c.benchmark = b.benchmark AND c.eval_length = b.eval_length
    AND c.task_set = b.task_set
LEFT JOIN verdicts d
    ON d.base_model = p.base_model AND d.method = p.method
    AND NOT d.frozen AND d.other_method = p.common_method AND NOT d.other_frozen
    AND d.benchmark = b.benchmark AND d.eval_length = b.eval_length
WHERE b.value IS NOT NULL AND c.value IS NOT NULL
ORDER BY p.base_model, b.benchmark, b.eval_length, common_rank, method

-- name: papers
-- The study's values next to those printed in papers.
FROM paper_comparison WHERE study = $study AND value IS NOT NULL

-- name: agreement
-- Rank correlation between each paper's order of methods and the study's.
FROM paper_agreement WHERE study = $study

-- name: controls
-- Mean score over seeds of done cells whose prompts were also scored without their context, and with only
-- the answer's neighbourhood.
SELECT s.base_model, s.method, s.frozen, s.benchmark, s.task, s.eval_length,
    avg(s.value) AS score,
    avg(c.no_context) AS no_context,
    avg(c.local_context) AS local_context
FROM scores AS s
JOIN cells AS c USING (study, cell)
WHERE s.study = $study AND s.is_default
    AND (c.no_context IS NOT NULL OR c.local_context IS NOT NULL)
GROUP BY s.base_model, s.method, s.frozen, s.benchmark, s.task, s.eval_length
ORDER BY s.benchmark, s.task, s.eval_length

-- name: violations
-- Factors other than the method (kernel, hardware, ...) that differ between compared cells.
SELECT factor, among, value, usual, methods,
    sum(num_cells)::BIGINT AS cells,
    string_agg(DISTINCT benchmark, ', ' ORDER BY benchmark) AS benchmarks
FROM control_violations
WHERE study = $study
GROUP BY factor, among, value, usual, methods
ORDER BY factor, among, cells DESC, value

-- name: costs
-- Seconds, tokens and FLOPs of each method.
FROM costs WHERE study = $study ORDER BY base_model, method, frozen

-- name: missing
-- Cells without a result, grouped by reason.
SELECT status, base_model, method, frozen, reason,
    string_agg(DISTINCT benchmark, ', ' ORDER BY benchmark) AS benchmarks,
    list(DISTINCT eval_length ORDER BY eval_length) AS eval_lengths,
    list(DISTINCT seed ORDER BY seed) AS seeds,
    count(*) AS cells
FROM missing_cells
WHERE study = $study
GROUP BY status, base_model, method, frozen, reason
ORDER BY status, base_model, method, frozen, reason

-- name: environments
-- Machines, software and commits with which the done cells were computed.
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

-- name: described_methods
-- Summary and source of each method, by its label in the study.
SELECT c.method, p.name, any_value(p.summary) AS summary, any_value(p.source) AS source,
    any_value(p.place) AS place,
    list(DISTINCT a.spec->>'$.method') AS settings
FROM cells c
JOIN plugins p ON p.study = c.study AND p.part = 'method' AND p.name = c.method_name
LEFT JOIN artifacts a ON a.artifact = c.cell
WHERE c.study = $study
GROUP BY c.method, p.name
ORDER BY c.method

-- name: described_benchmarks
-- Summary and source of each benchmark, and what its profile evaluates.
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

-- name: sample_answers
-- Five answers of each benchmark, wrong and right ones in turn, each of another method and to another
-- prompt if possible. Digests decide which, so that the same results always give the same answers.
WITH again AS (
    SELECT base_model, other_method AS method, other_frozen AS frozen
    FROM same_computation
    WHERE study = $study
),
answered AS (
    SELECT c.base_model, c.benchmark, c.task, c.eval_length, c.method, c.frozen, c.seed, c.cell,
        s.sample, s.prediction, s.reference, s.score, s.prompt_end,
        s.score >= 0.5 AS is_right
    FROM cells c
    JOIN studies t USING (study, base_model)
    JOIN samples s USING (cell)
    WHERE c.study = $study AND c.kind <> 'text' AND c.eval_length <= t.target_context
        AND s.prediction IS NOT NULL
    QUALIFY c.eval_length = max(c.eval_length) OVER (PARTITION BY c.base_model, c.benchmark)
),
one_each AS (
    FROM answered
    ANTI JOIN again USING (base_model, method, frozen)
    QUALIFY row_number() OVER (
        PARTITION BY base_model, benchmark, method, frozen, is_right
        ORDER BY sha256(concat(method, frozen, seed, task, sample)), cell, sample
    ) = 1
),
numbered AS (
    SELECT *, row_number() OVER (
            PARTITION BY base_model, benchmark, is_right
            ORDER BY sha256(concat(method, frozen, is_right)), method, frozen
        ) AS number
    FROM one_each
)
SELECT * EXCLUDE (number)
FROM numbered
QUALIFY row_number() OVER (PARTITION BY base_model, benchmark ORDER BY number, is_right) <= 5
ORDER BY base_model, benchmark, number, is_right

-- name: run
-- One row: numbers of cells and seeds, profiles, and times of the first and last result.
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
