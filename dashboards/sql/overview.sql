FROM overview WHERE study = $study
