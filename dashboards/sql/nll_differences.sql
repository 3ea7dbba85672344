FROM nll_against_base
WHERE study = $study
