-- The cells of one method at one length of a benchmark.
SELECT base_model, task, seed, status, reason, attempts, seconds, cell
FROM cells
WHERE study = $study AND method = $method AND frozen = $frozen
    AND benchmark = $benchmark AND eval_length = $eval_length
