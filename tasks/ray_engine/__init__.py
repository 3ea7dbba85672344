"""Compute units on a Ray cluster: its nodes provide the slots, and its actors are the workers.

Ray is imported only when a run uses it.
"""
