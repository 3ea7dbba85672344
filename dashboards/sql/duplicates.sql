FROM same_computation WHERE study = $study
