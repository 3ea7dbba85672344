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
