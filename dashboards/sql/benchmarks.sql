FROM benchmark_by_length WHERE study = $study
