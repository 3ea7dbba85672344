-- Queries of the first screen, beside some of `dashboards/report.sql`.

-- name: pairs
FROM paired_difference WHERE study = $study AND is_all_tasks

-- name: means
-- Mean scores over tasks and finished seeds. The interval of several tasks is the mean of theirs,
-- which is at least as wide as their dependence demands.
SELECT s.base_model, s.method, s.frozen, s.benchmark, s.eval_length,
    any_value(s.unit) AS unit, any_value(s.higher_is_better) AS higher_is_better,
    avg(coalesce(s.value, s.value_of_done)) AS value,
    CASE WHEN count(*) = count(m.ci_low) THEN avg(m.ci_low) END AS ci_low,
    CASE WHEN count(*) = count(m.ci_low) THEN avg(m.ci_high) END AS ci_high
FROM score_by_length s
LEFT JOIN mean_over_seeds m USING (study, base_model, method, frozen, benchmark, task, eval_length)
WHERE s.study = $study
GROUP BY s.base_model, s.method, s.frozen, s.benchmark, s.eval_length
HAVING count(*) = count(coalesce(s.value, s.value_of_done))
QUALIFY count(*) = max(count(*)) OVER (PARTITION BY s.base_model, s.benchmark, s.eval_length)

-- name: trainings
-- Fine-tuning runs, each once, even if several methods use its weights. The FLOPs of a method's
-- earlier stages are part of those of its last run.
SELECT base_model, checkpoint, any_value(r.seconds) AS train_seconds,
    any_value(train_flops) FILTER (is_last) AS train_flops
FROM training_runs r
JOIN cells USING (study, base_model, method, frozen)
WHERE study = $study AND is_finetuning
GROUP BY base_model, checkpoint

-- name: checks
-- Problems of prompts, by benchmark and length.
SELECT base_model, benchmark, eval_length, problem, string_agg(DISTINCT task, ', ') AS tasks
FROM prompt_checks
WHERE study = $study AND problem IS NOT NULL
GROUP BY ALL ORDER BY ALL

-- name: amendments
FROM amendments WHERE study = $study

-- name: cells
SELECT base_model, status, count(*) AS number FROM cells WHERE study = $study GROUP BY ALL
