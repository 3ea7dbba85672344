"""Export models that stock software runs without lce: the method becomes keys of config.json."""
