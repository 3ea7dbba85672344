FROM mean_over_seeds WHERE study = $study
