"""Read a study file, plan its computations, look them up in the store and predict their times."""
