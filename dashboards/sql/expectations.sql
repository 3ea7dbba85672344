-- Comparisons that the study file predicts, without those that every study makes.
FROM expectations WHERE study = $study AND entry IS NOT NULL
