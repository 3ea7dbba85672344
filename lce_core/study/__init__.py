"""Read a study file, plan its steps, find their states and predict their costs."""
