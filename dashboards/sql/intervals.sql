FROM scores WHERE study = $study AND is_default
