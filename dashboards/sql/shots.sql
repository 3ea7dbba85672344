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
