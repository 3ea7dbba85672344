-- One method against every other on the same prompts.
FROM paired_difference
WHERE study = $study AND method = $method AND frozen = $frozen
