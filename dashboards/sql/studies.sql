FROM studies WHERE study = $study
