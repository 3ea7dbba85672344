SELECT base_model, is_finetuning, corpus, num_steps, row_length, settings,
    list(DISTINCT {'method': method, 'frozen': frozen}) AS methods
FROM training_runs
WHERE study = $study
GROUP BY ALL
ORDER BY base_model, is_finetuning, count(*) DESC, row_length
