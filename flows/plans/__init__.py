"""Predict a study's costs, restrict a run to a budget, and detect changed plug-ins."""
