-- One method compared with every other method on the same prompts.
FROM paired_difference
WHERE study = $study AND method = $method AND frozen = $frozen
