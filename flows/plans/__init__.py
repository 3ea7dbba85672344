"""Prices and budgets of a study's steps, and changes of its plug-ins."""
