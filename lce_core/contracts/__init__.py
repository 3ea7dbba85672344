"""What every plug-in keeps, as plain checks, for `lce check` and for tests.

A check tries a loaded class on tiny models and made-up text, and raises AssertionError.
"""
