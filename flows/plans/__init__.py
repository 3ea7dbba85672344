"""Predict a study's costs, and restrict a run to a budget."""
