-- Answers of one method at one task and length, by seed.
SELECT c.base_model, c.seed, s.sample, s.depth, s.score, s.prediction, s.reference,
    s.num_prompt_tokens, s.cluster, c.cell
FROM cells c
JOIN samples s USING (cell)
WHERE c.study = $study AND c.method = $method AND c.frozen = $frozen
    AND c.benchmark = $benchmark AND c.task = $task AND c.eval_length = $eval_length
ORDER BY c.seed, s.sample
