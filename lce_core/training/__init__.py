"""Train a model in one loop, from the job description to the saved checkpoint."""
