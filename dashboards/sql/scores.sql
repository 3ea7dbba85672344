FROM score_by_length WHERE study = $study
