"""What is to be done: the study file, its plan, where each step stands, what it costs."""
