-- Number of prompts or windows of text behind the score of one seed. Methods can differ in it.
SELECT base_model, benchmark, task, eval_length,
    min(num_samples) AS fewest,
    max(num_samples) AS most
FROM scores
WHERE study = $study AND is_default
GROUP BY ALL
