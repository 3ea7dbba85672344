"""Contracts of all plug-ins as plain checks, for `lce check` and for tests.

A check runs a loaded class on tiny models and synthetic text, and raises AssertionError on a
violation.
"""
