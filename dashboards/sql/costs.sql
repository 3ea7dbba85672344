FROM costs WHERE study = $study ORDER BY base_model, method, frozen
