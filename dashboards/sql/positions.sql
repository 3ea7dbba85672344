FROM nll_by_position
WHERE study = $study
